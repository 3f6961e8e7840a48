"""Files of the user, read once: what a path names may be a pipe, which gives its text only once.

This is the one place where a configuration file or a saved plan is read. Whoever has to look at a
file more than once opens it first, and hands on what was read in place of the path.
"""

from __future__ import annotations

import errno
import os
import re
import select
import time
from pathlib import Path
from typing import Final

from stagemesh.spec.frozen import frozen

PATIENCE_S: Final = 10.0
"""Seconds that a pipe may take until all of it was written."""
MAX_BYTES: Final = 2**20
"""Size of a file or text of the user; one that is larger is refused before it is parsed."""
MAX_PLAN_BYTES: Final = 2**28
"""Size of a saved plan, which may be larger than any file that people write."""

_PLAN_HEAD: Final = re.compile(rb'\s*\{\s*"version"\s*:\s*[0-9]+\s*,\s*"pipeline"\s*:')
"""How a saved plan begins."""


@frozen
class OpenedFile:
    """What a path held when it was read, or why it could not be."""

    name: str
    """The path as the user gave it."""
    content: bytes = b""
    """What was in it; one byte more than is allowed of a file that is too large."""
    problem: str | None = None
    """Why it could not be read."""
    is_missing: bool = False
    """Whether that is because there is nothing at the path."""

    def __str__(self) -> str:
        """The path, as messages show it."""
        return self.name

    @property
    def begins_like_a_plan(self) -> bool:
        """Whether it begins as saved plans do."""
        return _begins_like_a_plan(self.content)


def open_file(path: Path | str, *, is_plan: bool = False) -> OpenedFile:
    """Read a file to its end, or one byte further than it may be large.

    A pipe into which nobody writes is left in time. `is_plan` says that a saved plan is meant,
    however it begins.
    """
    name = str(path)
    try:
        return OpenedFile(name=name, content=_content(Path(path), is_plan=is_plan))
    except OSError as error:
        problem = _lower(error.strerror or str(error))
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        return OpenedFile(name=name, problem=problem, is_missing=is_missing)
    except ValueError as error:  # a NUL in the name
        return OpenedFile(name=name, problem=_lower(str(error)))


def _content(path: Path, *, is_plan: bool) -> bytes:
    """Read it; raises `TimeoutError` for a pipe into which nobody writes."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else opening such a pipe never returns
    try:
        ready, deadline, content = select.poll(), time.monotonic() + PATIENCE_S, bytearray()
        ready.register(opened, select.POLLIN)
        most = MAX_PLAN_BYTES if is_plan else MAX_BYTES
        while len(content) <= most:
            if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
                message = f"nothing came for {PATIENCE_S:g} s"
                raise TimeoutError(errno.ETIMEDOUT, message)
            part = os.read(opened, MAX_BYTES + 1)
            if not part:
                break
            content += part
            if len(content) > most and _begins_like_a_plan(content):
                most = MAX_PLAN_BYTES
        return bytes(content[: most + 1])
    finally:
        os.close(opened)


def _begins_like_a_plan(content: bytes | bytearray) -> bool:
    return _PLAN_HEAD.match(content) is not None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
