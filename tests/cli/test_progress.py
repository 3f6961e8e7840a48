"""The live display of `stagemesh run` on a terminal."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from rich.console import Console

import stagemesh.cli._progress
from stagemesh.cli._log import show_log
from stagemesh.cli._progress import Progress, report_text
from stagemesh.runtime.outputs import OmniResult, StageProgress, StageReport, StageState
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


class Terminal(io.StringIO):
    """A screen."""

    def isatty(self) -> bool:
        """Say that somebody looks."""
        return True


def console(*, stderr: bool) -> Console:
    """A console of fifty columns on standard error, whatever that is at the moment."""
    return Console(stderr=stderr, force_terminal=True, width=50)


@pytest.fixture
def own_log(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The log as it is in a new process."""
    log = logging.getLogger("stagemesh")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "level", log.level)
    return log


def test_a_logged_line_stands_whole_above_the_display(
    monkeypatch: pytest.MonkeyPatch, own_log: logging.Logger
) -> None:
    """Though the log was opened before it; what is drawn below is drawn anew."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(stagemesh.cli._progress, "Console", console)
    show_log()
    with Progress(fake_plan(three_stages())) as progress:
        progress._live.refresh()
        own_log.info("replica 0: [bold]a word")
        progress._live.refresh()
    own_log.info("afterwards")
    assert "\nstagemesh: replica 0: [bold]a word\n" in screen.getvalue().replace("\x1b[2K", "\n")
    assert screen.getvalue().endswith("stagemesh: afterwards\n")


def test_the_display_fits_a_narrow_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is broken between words."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(stagemesh.cli._progress, "Console", console)
    with Progress(fake_plan(three_stages())) as progress:
        progress.started()
        units = {"tokens": 12.0, "audio_s": 3.25, "prompt_tokens": 100.0}
        progress.news(
            StageProgress(
                request_id="one",
                stage="thinker",
                replica=0,
                state=StageState.RUNNING,
                units=units,
            )
        )
        progress._live.refresh()
    shown = screen.getvalue()
    assert "3.2 s of audio, 100 prompt " in shown
    assert " tokens, 12 tokens " in shown


def test_the_final_table_fits_a_narrow_screen() -> None:
    """Columns that do not fit stand below their row."""
    stage = StageReport(
        stage="thinker",
        replicas=(0,),
        num_requests=1,
        seconds=0.5,
        first_output_s=0.25,
        units={"tokens": 8.0, "audio_s": 2.0},
    )
    result = OmniResult(
        request_id="one",
        text=None,
        audio=None,
        outputs=(),
        report=(stage,),
        seconds=1.5,
        first_output_s={"thinker": 0.25},
    )
    assert (
        report_text(result, 50)
        == """
stage    requests  time    first output
thinker  1         0.50 s  0.25 s
    work: 2.0 s of audio, 8 tokens
    real-time factor: 0.25
total 1.50 s; first output at the caller: thinker
after 0.25 s
"""
    )
