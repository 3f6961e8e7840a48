"""Frontends that are wrong: `python -m tests.serve.frontends.wrong CONTROL DOOR`, see `HOW`."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Final

HOW: Final = "STAGEMESH_TEST_WRONG"
"""Names the variable that says what is wrong."""


def main() -> None:
    """Do it, and wait to be ended."""
    control = socket.socket(fileno=int(sys.argv[1]))
    match os.environ[HOW]:
        case "garbage":
            control.sendall(b"\x00\x00\x00\x02{}")
        case "a word of the parent":
            control.sendall(b"\x00\x00\x00\x0b\x81\xa4type\xa4Stop")
        case "silent end":
            sys.exit(3)
        case "closed stream":
            control.close()
    signal.pause()


if __name__ == "__main__":
    main()
