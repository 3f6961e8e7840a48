"""Commands and programs in documentation, as tests can run them.

A fenced block whose language is `console` is a session: lines that start with `$ ` are commands, a
trailing backslash continues one, and what follows is the expected output, `...` standing for
anything. Without such lines the output is not looked at. A block of `python` is a program. Words
after the language say more:

    slow     it takes seconds or needs the demo's weights
    nightly  it is dear, and every part of it is in other tests of every run
    fails    the last command ends with an exit code other than 0
    server   the first command serves while the others run, and ends well at Ctrl-C
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FLAGS: Final = frozenset({"slow", "nightly", "fails", "server"})
MARKERS: Final = frozenset({"slow", "nightly"})
"""Those that are markers of tests as well."""
SHELLS: Final = frozenset({"bash", "sh", "shell", "zsh"})
_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of a session."""

    command: str
    """What is typed."""
    expected: str
    """What is shown then; empty when the document does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One block of a document."""

    place: str
    """`path:line` of its first line."""
    language: str
    """First word after the fence."""
    flags: frozenset[str]
    """Further words."""
    steps: tuple[Step, ...]
    """Its commands in order."""


def read_sessions(path: Path, name: str) -> Iterator[Session]:
    """Every fenced block of a Markdown file that can be run."""
    lines = path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        start, number = number, number + 1
        if opening is None:
            continue
        body: list[str] = []
        while number < len(lines) and lines[number].strip() != opening["marks"]:
            body.append(lines[number].removeprefix(opening["indent"]))
            number += 1
        number += 1
        language, *flags = opening["info"].split() or [""]
        if language in {"console", "python"} or language in SHELLS:
            whole = (Step(command="\n".join(body), expected=""),)
            yield Session(
                place=f"{name}:{start + 1}",
                language=language,
                flags=frozenset(flags),
                steps=whole if language == "python" else tuple(_steps(body)),
            )


def _steps(body: list[str]) -> Iterator[Step]:
    command = ""
    expected: list[str] = []
    continued = False
    for line in body:
        if continued:
            command += "\n" + line
        elif line.startswith("$ "):
            if command:
                yield Step(command=command, expected="\n".join(expected).strip())
            command, expected = line.removeprefix("$ "), []
        else:
            expected.append(line)
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    if command:
        yield Step(command=command, expected="\n".join(expected).strip())


def matches(expected: str, actual: str) -> bool:
    """Whether output is what a document shows, `...` standing for anything."""
    pattern = ".*".join(re.escape(_trimmed(part)) for part in _trimmed(expected).split("..."))
    return re.fullmatch(pattern, _trimmed(actual), flags=re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
