"""`python mps_keeper.py FD PROGRAM FOLDER`: keeps a CUDA MPS daemon for as long as it is wanted.

It is wanted until the other end of the socket FD is closed, which the death of its owner does as
well: so no daemon is left behind. Then it is asked to quit, made to if it does not, and FOLDER is
removed with its pipes and logs. When the daemon ends by itself, so does this, and the other way
round. It takes the standard library alone: it lives as long as all stages, and starts at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

_SERVERS_S: Final = 2
"""How long the daemon may wait for what it has started, as it is told."""
_QUIT_S: Final = 4.0
"""How long it may take to hear and to do that."""


def main(wanted: int, program: str, folder: str) -> None:
    """Run the daemon until the end of it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _not_for_us)
    tied = [sys.executable, "-I", "-S", str(Path(__file__).with_name("tied.py")), str(os.getpid())]
    command = [*tied, program, "-f"]
    daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603  as it was found
    ends = select.poll()
    ends.register(wanted, select.POLLIN)
    ends.register(os.pidfd_open(daemon.pid), select.POLLIN)
    ends.poll()
    if daemon.poll() is None:
        _quit(program, daemon)
    shutil.rmtree(folder, ignore_errors=True)


def _not_for_us(_number: int, _frame: object) -> None:
    """Whoever owns this decides; unlike one that is ignored, the daemon gets the signal."""


def _quit(program: str, daemon: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired, OSError):
        told = f"quit -t {_SERVERS_S}\n".encode()
        subprocess.run([program], input=told, timeout=_QUIT_S, check=False)  # noqa: S603  the same
    try:
        daemon.wait(_QUIT_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # and what the daemon has left
