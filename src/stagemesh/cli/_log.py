"""Where `--debug` writes: the standard error of the moment, so that a live display can guard it."""

from __future__ import annotations

import logging
import sys
from typing import TextIO


class ErrorStream(logging.StreamHandler[TextIO]):
    """Writes to `sys.stderr` as it is when a line comes.

    A live display replaces it while it draws, and then puts each line above what it redraws.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.setStream(sys.stderr)
        super().emit(record)


def show_log(lines: logging.Formatter | None = None, level: int = logging.DEBUG) -> None:
    """Show what stagemesh logs, which includes every line that a stage writes.

    `lines` says how, in place of how it was shown before.
    """
    shown = ErrorStream()
    shown.setFormatter(lines or logging.Formatter("%(name)s: %(message)s"))
    log = logging.getLogger("stagemesh")
    for before in [each for each in log.handlers if isinstance(each, ErrorStream)]:
        log.removeHandler(before)
    log.addHandler(shown)
    log.setLevel(level)
