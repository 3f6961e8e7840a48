"""The command line itself: help, usage, exit codes, and how errors look."""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stagemesh.cli._plan
from stagemesh.cli._main import INTERRUPTED, READER_GONE, main
from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    DiagnosticError,
    InvalidRequestError,
    RequestError,
    StageFailedError,
    StagemeshError,
    StartupError,
)
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.registry import COMMANDS

Run = Callable[[argparse.Namespace], int]

_DIFF = """
import sys, tempfile
from stagemesh.cli._main import main
with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
    file.write("stages: []\\n")
    file.flush()
    sys.exit(main(["diff", file.name, file.name]))
"""


@pytest.fixture
def plan_does(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Replace the work of `stagemesh plan`."""

    def replace(run: Run) -> None:
        monkeypatch.setattr(stagemesh.cli._plan, "run", run)

    return replace


def raising(error: BaseException) -> Run:
    """Work that ends badly."""

    def run(_namespace: argparse.Namespace) -> int:
        raise error

    return run


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """With the summary of each; nothing goes to standard error."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr()
    for command in COMMANDS.declarations():
        assert command.name in shown.out
    assert shown.err == ""


def test_help_of_a_command_shows_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the command that was typed is configured."""
    assert main(["plan", "--help"]) == 0
    shown = capsys.readouterr().out
    for flag in ("--strategy-config", "--no-async-chunk", "--devices", "--debug", "--output"):
        assert flag in shown


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    """One line."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stagemesh 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["plan"],
        ["list", "x"],
        ["list", "axes", "again"],
    ],
)
def test_wrong_usage_exits_with_two(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason goes to standard error."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "usage: stagemesh" in shown.err


def test_arguments_come_from_the_process_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for the installed script."""
    monkeypatch.setattr(sys, "argv", ["stagemesh", "--version"])
    assert main() == 0
    assert capsys.readouterr().out != ""


def test_a_command_decides_the_exit_code(plan_does: Callable[[Run], None]) -> None:
    """Whatever it returns."""
    plan_does(lambda _namespace: 7)
    assert main(["plan", "m"]) == 7


def test_diagnostics_of_a_command_are_shown_without_traceback(
    plan_does: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error."""
    plan_does(raising(DiagnosticError([Diagnostic(code="CL001", message="no way")])))
    assert main(["plan", "m"]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        "",
        "error[CL001]: no way\n\n1 error. `stagemesh explain CL001` tells more.\n",
    )


def test_diagnostics_are_data_when_data_was_asked_for(
    plan_does: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard output."""
    plan_does(raising(DiagnosticError([Diagnostic(code="CL001", message="no way")])))
    assert main(["plan", "m", "--json"]) == 1
    shown = capsys.readouterr()
    assert '"code": "CL001"' in shown.out
    assert shown.err == ""


def test_an_error_of_the_runtime_is_a_diagnostic(
    plan_does: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """With its code and what to do; the last lines of the stage are notes."""
    plan_does(raising(StartupError("stage `talker` did not start\nno\tweights")))
    assert main(["plan", "m"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "error[RT011]: stage `talker` did not start\nnote: no weights\n"
        "help: `--debug` shows everything that the stages write\n\n"
        "1 error. `stagemesh explain RT011` tells more.\n"
    )


@pytest.mark.parametrize("error", [InvalidRequestError, StageFailedError, DeadlineError])
def test_an_error_of_a_request_is_data_when_data_was_asked_for(
    error: type[RequestError],
    plan_does: Callable[[Run], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On standard output, with a code of its own and a remedy."""
    plan_does(raising(error("stage `thinker` replica `0`: too long")))
    assert main(["plan", "m", "--json"]) == 1
    shown = capsys.readouterr()
    [found] = json.loads(shown.out)["diagnostics"]
    assert (found["code"], found["help"]) == (error.code, error.help)
    assert found["message"] == "stage `thinker` replica `0`: too long"
    assert shown.err == ""


def test_errors_have_codes_of_their_own() -> None:
    """No two kinds share one."""
    kinds: list[type[StagemeshError]] = [
        StartupError,
        InvalidRequestError,
        StageFailedError,
        DeadlineError,
        ClosedError,
        StagemeshError,
    ]
    assert len({kind.code for kind in kinds}) == len(kinds)


@pytest.fixture
def _own_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log as it is in a new process, and afterwards as it was."""
    log = logging.getLogger("stagemesh")
    monkeypatch.setattr(log, "handlers", [])
    level = log.level
    yield
    log.setLevel(level)


@pytest.mark.usefixtures("_own_log")
@pytest.mark.parametrize("arguments", [["--debug", "plan", "m"], ["plan", "m", "--debug"]])
def test_a_traceback_appears_only_when_asked_for(
    arguments: list[str], plan_does: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before or behind the command."""
    plan_does(raising(StartupError("it did not start")))
    assert main(arguments) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.usefixtures("_own_log")
@pytest.mark.parametrize(("arguments", "shown"), [([], False), (["--debug"], True)])
def test_what_stages_write_is_shown_when_asked_for(
    arguments: list[str],
    shown: bool,  # noqa: FBT001  a column of the table
    plan_does: Callable[[Run], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is logged by stage, and quiet without `--debug`."""

    def run(_namespace: argparse.Namespace) -> int:
        logging.getLogger("stagemesh.stage.talker").info("replica 0: a word")
        return 0

    plan_does(run)
    assert main(["plan", "m", *arguments]) == 0
    assert ("stagemesh.stage.talker: replica 0: a word" in capsys.readouterr().err) is shown


def test_a_mistake_of_ours_is_not_hidden(plan_does: Callable[[Run], None]) -> None:
    """An internal fault keeps its traceback."""
    plan_does(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["plan", "m"])


def test_an_interrupt_ends_quietly(
    plan_does: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code that shells expect."""
    plan_does(raising(KeyboardInterrupt()))
    assert main(["plan", "m"]) == INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (3, 3), ("text", 1)])
def test_an_exit_inside_a_command_becomes_a_code(
    code: object, expected: int, plan_does: Callable[[Run], None]
) -> None:
    """`main` returns; it never leaves the process itself."""
    plan_does(raising(SystemExit(code)))
    assert main(["plan", "m"]) == expected


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_quietly(unbuffered: str) -> None:
    """As with `| head`: no traceback, neither at the write nor at the exit."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        ended = subprocess.run(
            [sys.executable, "-m", "stagemesh", "list", "axes", "--json"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
            timeout=240,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (ended.returncode, ended.stderr) == (READER_GONE, b"")


def test_output_after_the_reader_has_gone_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still buffered is flushed into the void when the stream is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert main(["list", "axes", "--json"]) == READER_GONE


def test_a_closed_standard_output_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is nowhere to write to, nothing is done."""
    monkeypatch.setattr("sys.stdout", None)
    assert main(["list", "axes"]) == 1
    assert capsys.readouterr().err == "error[CL006]: standard output is closed\n"


@pytest.mark.parametrize(
    ("arguments", "code"), [(["diff", "a", "b"], 2), (["plan", "m"], 1), (["none"], 1), ([], 1)]
)
def test_a_closed_standard_output_leaves_what_the_command_leaves(
    arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 of `diff` says that there are differences, so trouble is 2."""
    monkeypatch.setattr("sys.stdout", None)
    assert main(arguments) == code


def test_a_full_standard_output_is_told() -> None:
    """A device without room: exit code 1, one line, no traceback."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stagemesh", "list", "axes"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "error[CL006]: standard output cannot be written: no space left on device\n"
    )


def test_a_fault_of_our_own_is_not_taken_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other system errors are not hidden."""

    def fail(_arguments: list[str], _namespace: argparse.Namespace) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("stagemesh.cli._main._run", fail)
    with pytest.raises(OSError, match="too many"):
        main(["list", "axes"])


def test_a_full_output_of_a_command_whose_one_is_an_answer_leaves_two() -> None:
    """`diff` says with 1 that there is a difference."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", _DIFF],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "error[CL006]" in done.stderr


def test_a_full_disk_behind_standard_output_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a write can run out of room, so that is what is said."""

    def fail(_arguments: list[str], _namespace: argparse.Namespace) -> int:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr("stagemesh.cli._main._run", fail)
    monkeypatch.setattr("stagemesh.cli._main._forget_output", lambda: None)
    assert main(["list", "axes"]) == 1
    assert "error[CL006]: standard output cannot be written" in capsys.readouterr().err
