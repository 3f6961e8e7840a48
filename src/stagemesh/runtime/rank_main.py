"""`python -m stagemesh.runtime.rank_main FD NAME`: the process of a further rank of a replica.

The descriptor is the control stream to the supervisor, which says everything else; the name is for
whoever looks at processes. The engine is asked what that of rank 0 is asked; whatever it raises is
the end of the replica.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from typing import Final

from stagemesh.runtime.descriptors import raise_file_limit
from stagemesh.runtime.rank_engine import rank_engine
from stagemesh.runtime.ranks.follower import Follower
from stagemesh.runtime.ranks.io import RankAssignment, RankIO

_END_S: Final = 5.0
"""How long the supervisor may take to end a replica whose rank 0 is gone."""


def main() -> int:
    """Follow rank 0 until it closes; the exit code is 0 when it did."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_file_limit()
    io = RankIO(socket.socket(fileno=int(sys.argv[1])))
    assignment = io.start()
    try:
        is_closed = _run(assignment)
    except Exception as error:  # noqa: BLE001  the edge of a process: engines are foreign code
        with contextlib.suppress(OSError):  # nobody reads it
            traceback.print_exc()
        # The engine is not closed: its collectives may never end.
        io.stop(fatal=f"{type(error).__name__}: {error}")
        return 1
    if not is_closed:
        time.sleep(_END_S)
        io.stop(fatal="rank 0 is gone")
        return 1
    io.stop()
    return 0


def _run(assignment: RankAssignment) -> bool:
    setup = assignment.setup
    stage = assignment.plan.stage(setup.stage)
    engine = rank_engine(
        assignment.plan, stage, setup.replica, rank=setup.rank, rendezvous=assignment.rendezvous
    )
    engine.load()
    assignment.feed.ready()
    is_closed = Follower(engine, assignment.feed).run()
    if is_closed:
        engine.close()
    return is_closed


if __name__ == "__main__":
    code = main()
    with contextlib.suppress(OSError):  # nobody reads it: the code tells how it ended all the same
        sys.stdout.flush()
        sys.stderr.flush()
    # Not through interpreter shutdown: threads that a library left must not keep the rank alive.
    os._exit(code)
