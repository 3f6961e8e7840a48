"""What a stage process writes: every line goes to a logger, and the last ones are kept.

The logger is `stagemesh.stage.<name>` at level INFO, so that it is quiet unless somebody listens;
tracebacks of failed requests and warnings of libraries are found there. A record bears `stage` and
`replica`, and `request_id` where the line is about one.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from typing import IO, Final

from stagemesh.runtime.request_lines import read

_KEPT_LINES: Final = 12
_LINE_BYTES: Final = 2048
_READ_BYTES: Final = 64 * 1024


class StageOutput:
    """The reading end of the pipe that takes a stage's standard output and error."""

    def __init__(self, pipe: IO[bytes], stage: str, replica: int, rank: int = 0) -> None:
        """Take over `pipe`; reading never waits."""
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._log = logging.getLogger(f"stagemesh.stage.{stage}")
        self._whose = f"replica {replica} rank {rank}" if rank else f"replica {replica}"
        self._where = {"stage": stage, "replica": replica}
        self._begun = b""
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._pipe.fileno()

    def read(self) -> bool:
        """Take in what was written since; `False` once nothing can follow."""
        try:
            data = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return True
        *lines, self._begun = (self._begun + data).split(b"\n")
        while len(self._begun) > _LINE_BYTES:  # a line without end is cut into several
            lines.append(self._begun[:_LINE_BYTES])
            self._begun = self._begun[_LINE_BYTES:]
        for line in lines:
            self._told(line)
        return bool(data)

    def close(self) -> None:
        """Take in the rest and close the pipe."""
        self.read()
        if self._begun:
            self._told(self._begun)
        self._pipe.close()

    def last_lines(self) -> str:
        """The last lines that were written."""
        return "\n".join(self._kept)

    def _told(self, line: bytes) -> None:
        request, text = read(line[:_LINE_BYTES].decode(errors="replace").rstrip())
        self._kept.append(text)
        about = "" if request is None else f"request `{request}`: "
        extra = self._where | {"request_id": request}
        self._log.info("%s: %s%s", self._whose, about, text, extra=extra)
