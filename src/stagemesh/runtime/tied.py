"""`python tied.py OWNER PROGRAM ARGUMENT...`: becomes a program that dies with who started it.

It is for foreign programs, which hear of no end of a stream. The kernel kills it when the thread
that has started it ends; OWNER, the number of its process, tells whether that was too early.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main(owner: int, command: list[str]) -> None:
    """Become the program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() == owner:
        os.execv(command[0], command)  # noqa: S606  as it was found on this host


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
