"""The state of a server as a table, one row for each replica."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from stagemesh.plan.table import table

_HEAD: Final = (
    *("stage", "replica", "state", "process", "restarts", "queue", "wait", "running"),
    *("outputs/s", "first output", "in step", "reason"),
)


def state_text(state: Mapping[str, Any], width: int | None = None) -> str:
    """Show what `GET /state` of a control socket answered."""
    rows = [_HEAD, *_rows(state)]
    return "\n".join([f"{state['pipeline']}: {state['state']}", *table(rows, width, headed=True)])


def _rows(state: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for stage in state["stages"]:
        for replica in stage["replicas"]:
            reason = replica["reason"] or "-"
            yield (
                stage["stage"],
                str(replica["replica"]),
                replica["state"],
                "-" if replica["pid"] is None else str(replica["pid"]),
                str(replica["num_restarts"]),
                "-" if replica["queued"] is None else str(replica["queued"]),
                str(replica["waiting"]),
                str(replica["running"]),
                f"{replica['outputs_per_s']:.1f}",
                _seconds(replica["first_output_s"]),
                f"{replica['step_s']:.1f} s" if replica["step_s"] else "-",
                reason.splitlines()[0],
            )


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f} s"
