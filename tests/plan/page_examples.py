"""Takes the pages of diagnostic codes apart and runs their examples."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

from stagemesh.cli._main import main

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
_FENCE: Final = re.compile(r"```(?P<info>[^\n]*)\n(?P<body>.*?)```", re.DOTALL)
_TOLD: Final = re.compile(r"^(?:error|warning)\[([A-Z]{2}\d{3})\]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What one section of a page shows."""

    files: Mapping[str, str]
    """Files by name."""
    command: str | None
    """The command line; `None` where the section is prose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command left."""

    exit_code: int
    """Its exit code."""
    codes: tuple[str, ...]
    """Codes that it told, in order."""
    shown: str
    """Standard error, for the message of a test."""


def example_of(section: str) -> Example:
    """Read the fences of a section."""
    files: dict[str, str] = {}
    command = None
    for fence in _FENCE.finditer(section):
        language, _, name = fence["info"].partition(" ")
        if language == "console":
            line = fence["body"].strip()
            assert line.startswith("$ "), line
            assert command is None, "one command for a section"
            command = line.removeprefix("$ ")
        elif name:
            files[name] = fence["body"]
    return Example(files=files, command=command)


def fixed(example: Example, fix: Example) -> Example:
    """The example with what the fix changes."""
    command = fix.command or example.command
    return Example(files={**example.files, **fix.files}, command=command)


def run(example: Example, folder: Path) -> Outcome:
    """Run an example in a folder of its own, beside the fixture checkpoints."""
    assert example.command is not None
    folder.mkdir()
    for name, text in example.files.items():
        _write(folder / name, text, is_folder=name.endswith("/"))
    for fixture in (*FIXTURES.iterdir(), *(FIXTURES / "diffusers").iterdir()):
        (folder / fixture.name).symlink_to(fixture)
    environ, arguments = _words(example.command)
    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    with (
        mock.patch.dict(os.environ, environ),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        exit_code = main(arguments)
    told = _TOLD.findall(err.getvalue())
    return Outcome(exit_code=exit_code, codes=tuple(told), shown=err.getvalue())


def _write(path: Path, text: str, *, is_folder: bool) -> None:
    """Write a file with the folders above it, or an empty folder."""
    (path if is_folder else path.parent).mkdir(parents=True, exist_ok=True)
    if not is_folder:
        path.write_text(text, encoding="utf-8")


def _words(command: str) -> tuple[dict[str, str], list[str]]:
    """Split a command line into variables of the environment and arguments."""
    words = shlex.split(command)
    start = words.index("stagemesh")
    return dict(_assignments(words[:start])), words[start + 1 :]


def _assignments(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, sign, value = word.partition("=")
        assert sign, word
        yield name, value
