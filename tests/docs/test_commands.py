"""Every command and program that a document shows is run, and shows what the document says."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source import ROOT
from tests.docs.console import FLAGS, MARKERS, SHELLS, Session, Step, matches, read_sessions
from tests.waiting import WAIT_S

DOCUMENTS: Final = [
    path
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "AGENTS.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    )
    if path.is_file()
]
SESSIONS: Final = [
    session for path in DOCUMENTS for session in read_sessions(path, str(path.relative_to(ROOT)))
]


def run_session(session: Session, folder: Path) -> None:
    """Run the commands of a block in a folder that has `examples/`, and compare what they show."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools, "COLUMNS": "100", "NO_COLOR": "1"}
    steps = list(session.steps)
    with contextlib.ExitStack() as stack:
        if "server" in session.flags:
            stack.enter_context(_serving(steps.pop(0).command, folder, environment))
        for number, step in enumerate(steps, start=1):
            last = number == len(steps)
            _run_step(session, step, folder, environment, shall_fail=last)


def _run_step(
    session: Session, step: Step, folder: Path, environment: Mapping[str, str], *, shall_fail: bool
) -> None:
    is_make = step.command.startswith("make ")
    done = subprocess.run(
        _arguments(session, step),
        cwd=ROOT if is_make else folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    where = f"{session.place}: `{step.command}` ended with {done.returncode}:\n{done.stdout}"
    assert (done.returncode != 0) == (shall_fail and "fails" in session.flags), where
    if step.expected and not is_make:
        assert matches(step.expected, done.stdout), f"{where}\nshown:\n{step.expected}"


@contextmanager
def _serving(command: str, folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a server until the context is left."""
    with subprocess.Popen(
        shlex.split(command),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            ready = any("serving at" in line for line in server.stderr)
            assert ready, f"`{command}` does not serve"
            yield
            server.send_signal(signal.SIGINT)
            _, err = server.communicate(timeout=WAIT_S)
            assert server.returncode == 0, err
        finally:
            server.kill()


def _arguments(session: Session, step: Step) -> list[str]:
    if session.language == "python":
        return [sys.executable, "-c", step.command]
    if step.command.startswith("make "):
        # Targets of make install and test everything: here only that they exist is looked at.
        return ["make", "--dry-run", *shlex.split(step.command, comments=True)[1:]]
    return ["bash", "-c", step.command]


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(
            session,
            id=session.place,
            marks=[getattr(pytest.mark, word) for word in sorted(session.flags & MARKERS)],
        )
        for session in SESSIONS
    ],
)
def test_a_documented_command_works(session: Session, tmp_path: Path) -> None:
    """A block of a document runs as it stands, in an empty folder beside the examples."""
    assert session.language not in SHELLS, f"{session.place}: call it `console`, so that it is run"
    assert session.flags <= FLAGS, f"{session.place}: unknown words {session.flags - FLAGS}"
    assert session.steps, f"{session.place}: no line starts with `$ `"
    run_session(session, tmp_path)


def _session(folder: Path, block: str) -> Session:
    document = folder / "planted.md"
    document.write_text(f"text\n\n{block}\n", encoding="utf-8")
    (session,) = read_sessions(document, "planted.md")
    return session


@pytest.mark.parametrize(
    "block",
    [
        "```console\n$ false\n```",
        "```console\n$ echo one\ntwo\n```",
        "```console fails\n$ true\n```",
        "```console\n$ false\n$ true\n```",
        "```console\n$ make no-such-target\n```",
        "```console\n$ stagemesh-without-such-a-program\n```",
        "```python\nimport no_such_module\n```",
    ],
)
def test_a_wrong_document_is_caught(tmp_path: Path, block: str) -> None:
    """A failing command, a wrong output, a missing failure and an unknown target are found."""
    with pytest.raises(AssertionError, match=r"planted\.md:3"):
        run_session(_session(tmp_path, block), tmp_path)


@pytest.mark.parametrize(
    "block",
    [
        "```console\n$ echo one \\\n    two\none two\n```",
        "```console\n$ printf 'a\\nb\\nc\\n'\na\n...\nc\n```",
        "```console fails\n$ true\n$ false\n```",
        "```python\nif 1 + 1 != 2:\n    raise AssertionError\n```",
        "```console\n$ make check  # in the project\nwhatever it prints\n```",
    ],
)
def test_a_right_document_passes(tmp_path: Path, block: str) -> None:
    """Continued lines, ellipses, wanted failures and targets of make are understood."""
    run_session(_session(tmp_path, block), tmp_path)


def test_a_shell_block_that_would_not_be_run_is_seen(tmp_path: Path) -> None:
    """A block in another shell language is collected as well, and then refused by name."""
    assert _session(tmp_path, "~~~bash\nls\n~~~").language == "bash"
