"""Pipes in the place of files, as a shell gives the output of commands: `<(...)`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager


@contextmanager
def pipes(*texts: str) -> Iterator[Sequence[str]]:
    """Names of pipes, each of which gives its text once."""
    with ExitStack() as stack:
        yield [stack.enter_context(_pipe(text)) for text in texts]


@contextmanager
def _pipe(text: str) -> Iterator[str]:
    there, here = os.pipe()
    writer = threading.Thread(target=_write, args=(here, text))
    writer.start()
    try:
        yield f"/dev/fd/{there}"
    finally:
        os.close(there)
        writer.join()


def _write(here: int, text: str) -> None:
    try:
        with os.fdopen(here, "w", encoding="utf-8") as stream:
            stream.write(text)
    except BrokenPipeError:
        pass  # nobody has read it to its end
