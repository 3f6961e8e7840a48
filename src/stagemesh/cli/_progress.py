"""What `stagemesh run` shows while a request runs, and the table at its end.

On a terminal one line per stage is redrawn in place; elsewhere a line is written whenever a stage
changes its state, so that logs stay short. Everything goes to standard error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from stagemesh.plan.table import table, wrapped
from stagemesh.plan.values import Plan
from stagemesh.runtime.outputs import OmniResult, StageProgress, StageReport, StageState

_AUDIO_S: Final = "audio_s"
_REDRAWS_PER_S: Final = 8
_MARKS: Final = {
    StageState.WAITING: ".",
    StageState.FINISHED: "+",
    StageState.FAILED: "x",
}


class Progress:
    """The live display of one request."""

    def __init__(self, plan: Plan) -> None:
        """Show the stages of `plan`; nothing is drawn before the `with` block."""
        self._console = Console(stderr=True)
        self._stages = [stage.name for stage in plan.stages]
        self._news: dict[str, StageProgress] = {}
        self._ready = False
        self._lock = threading.Lock()
        self._spinner = Spinner("dots")
        self._live = Live(
            console=self._console,
            get_renderable=self._table,
            refresh_per_second=_REDRAWS_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=True,  # what is logged meanwhile stands above, whole
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._write("starting the stages")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def started(self) -> None:
        """All stages are ready."""
        self._ready = True
        if not self._console.is_terminal:
            self._write("all stages are ready")

    def news(self, news: StageProgress) -> None:
        """Take news of a stage, from whatever thread."""
        with self._lock:
            before = self._news.get(news.stage)
            self._news[news.stage] = news
        changed = before is None or before.state is not news.state
        if changed and news.state is not StageState.WAITING and not self._console.is_terminal:
            self._write(f"{news.stage}: {news.state.value} {units_text(news.units)}".rstrip())

    def _table(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        with self._lock:
            for name in self._stages:
                news = self._news.get(name)
                state = StageState.WAITING if news is None else news.state
                word = state.value if self._ready else "starting"
                busy = state is StageState.RUNNING or not self._ready
                mark = self._spinner if busy else _MARKS[state]
                grid.add_row(mark, name, word, units_text({} if news is None else news.units))
        return grid

    def _write(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def units_text(units: Mapping[str, float]) -> str:
    """Say amounts for people: `96 tokens, 5.2 s of audio`."""
    said = (
        f"{amount:.1f} s of audio" if name == _AUDIO_S else f"{amount:g} {name.replace('_', ' ')}"
        for name, amount in sorted(units.items())
    )
    return ", ".join(said)


def report_text(result: OmniResult, width: int | None = None) -> str:
    """The final table: per stage requests, time, first output, work and real-time factor."""
    head = ("stage", "requests", "time", "first output", "work", "real-time factor")
    rows = [head, *(_row(stage) for stage in result.report)]
    lines = [*table(rows, width, headed=True), *wrapped(_total(result), width)]
    return "\n" + "\n".join(lines) + "\n"


def _row(report: StageReport) -> tuple[str, ...]:
    first = "-" if report.first_output_s is None else f"{report.first_output_s:.2f} s"
    audio_s = report.units.get(_AUDIO_S)
    factor = f"{report.seconds / audio_s:.2f}" if audio_s else "-"
    return (
        report.stage,
        str(report.num_requests),
        f"{report.seconds:.2f} s",
        first,
        units_text(report.units) or "-",
        factor,
    )


def _total(result: OmniResult) -> str:
    firsts = ", ".join(
        f"{stage} after {seconds:.2f} s" for stage, seconds in result.first_output_s.items()
    )
    return f"total {result.seconds:.2f} s; first output at the caller: {firsts or 'none'}"
