"""The state of a server as a table, one row for each replica, and for each of several frontends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from stagemesh.plan.table import table

_HEAD: Final = (
    *("stage", "replica", "state", "process", "restarts", "queue", "wait", "running"),
    *("outputs/s", "first output", "in step", "reason"),
)

_FRONTENDS_HEAD: Final = ("frontend", "state", "process", "restarts", "owns", "reason")


def state_text(state: Mapping[str, Any], width: int | None = None) -> str:
    """Show what `GET /state` of a control socket answered."""
    lines = [f"{state['pipeline']}: {state['state']}"]
    if "frontends" in state:
        lines += table([_FRONTENDS_HEAD, *_frontend_rows(state)], width, headed=True)
    lines += table([_HEAD, *_rows(state)], width, headed=True)
    return "\n".join(lines)


def _frontend_rows(state: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for frontend in state["frontends"]:
        number = frontend["frontend"]
        owned = (
            f"{stage['stage']} {each['replica']}"
            for stage in state["stages"]
            for each in stage["replicas"]
            if each["frontend"] == number
        )
        yield (
            str(number),
            frontend["state"],
            "-" if frontend["pid"] is None else str(frontend["pid"]),
            str(frontend["num_restarts"]),
            ", ".join(owned),
            (frontend["reason"] or "-").splitlines()[0],
        )


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
