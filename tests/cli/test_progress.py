"""The live display of `stagemesh run` on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import stagemesh.cli._progress
from stagemesh.cli._progress import Progress
from stagemesh.runtime.outputs import StageProgress, StageState
from stagemesh.testing.fake_plan import fake_plan, three_stages


def test_a_terminal_shows_one_line_per_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting, running with what was done so far, and finished; nothing stays at the end."""
    screen = io.StringIO()

    def console(*, stderr: bool) -> Console:
        assert stderr
        return Console(file=screen, force_terminal=True, width=60)

    monkeypatch.setattr(stagemesh.cli._progress, "Console", console)
    with Progress(fake_plan(three_stages())) as progress:
        progress._live.refresh()
        progress.started()
        for state in (StageState.RUNNING, StageState.FINISHED):
            progress.news(
                StageProgress(
                    request_id="one",
                    stage="thinker",
                    replica=0,
                    state=state,
                    units={"tokens": 12.0},
                )
            )
            progress._live.refresh()
    shown = screen.getvalue()
    for words in ("starting", "running", "12 tokens", "finished", "vocoder"):
        assert words in shown
