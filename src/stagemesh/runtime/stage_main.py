"""`python -m stagemesh.runtime.stage_main FD ... NAME`: the process of one replica of one stage.

The descriptor is the control stream to the supervisor, which says everything else. Each further one
is that of a stage that runs here as well, on a thread of its own; they live and die together. The
name is for whoever looks at processes. SIGINT is ignored: whoever started the system decides what
an interrupt means.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Final, NoReturn, cast

from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.descriptors import raise_file_limit
from stagemesh.runtime.inbox import Inbox
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.rank_engine import rank_engine
from stagemesh.runtime.ranks.broadcast import BroadcastEngine
from stagemesh.runtime.ranks.feed import FeedWriter
from stagemesh.runtime.shapes import streams_of, together_on
from stagemesh.runtime.stage_io import Assignment, StageIO
from stagemesh.runtime.stage_loop import StageLoop, Target
from stagemesh.runtime.windowed_engine import WindowedEngine
from stagemesh.spec.bridge import BridgeFactory
from stagemesh.spec.engine import Engine
from stagemesh.spec.reference import resolve

_SWITCH_INTERVAL_S: Final = 0.001
"""How long the engine may keep the I/O thread waiting for the interpreter."""
_loading: Final = threading.Lock()
"""Whoever loads: libraries are not made to be imported, or set up, by two threads at a time."""


def main() -> int:
    """Run the stages until they are told to stop; the exit code is 0 when they were."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_file_limit()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    host, *guests = [_Hosted(socket.socket(fileno=int(number))) for number in sys.argv[1:-1]]
    threads = [threading.Thread(target=guest.live, daemon=True) for guest in guests]
    for thread in threads:
        thread.start()
    host.live()
    for thread in threads:
        thread.join()  # needs no deadline: the supervisor has one
    for each in (*guests, host):
        each.io.stop()
    return 0


class _Hosted:
    """One stage of this process, with its own streams, engine and loop."""

    def __init__(self, sock: socket.socket) -> None:
        self._inbox = Inbox()
        self.io = StageIO(sock, self._inbox)

    def live(self) -> None:
        """Run it until it is told to stop; whatever it raises is the end of the process."""
        assignment = self.io.start()
        try:
            _run(assignment, self.io, self._inbox)
        except Exception as error:  # noqa: BLE001  the edge of a process: engines are foreign code
            with contextlib.suppress(OSError):  # nobody reads it
                traceback.print_exc()
            self.io.stop(fatal=f"{type(error).__name__}: {error}")
            _leave(1)


def _run(assignment: Assignment, io: StageIO, inbox: Inbox) -> None:
    began = time.monotonic()
    targets = _targets(assignment.plan, assignment.stage)
    with _loading:
        engine = _engine(assignment)
        try:
            engine.load()
        except BaseException:
            engine.close()
            raise
    try:
        io.ready(time.monotonic() - began)
        recovers, count = not assignment.feeds, io.counts.loop
        StageLoop(engine, targets, inbox, io.emit, recovers=recovers, count=count).run()
    finally:
        engine.close()


def _engine(assignment: Assignment) -> Engine:
    engine = rank_engine(
        assignment.plan,
        assignment.stage,
        assignment.replica,
        rank=0,
        rendezvous=assignment.rendezvous,
    )
    if assignment.feeds:
        engine = BroadcastEngine(engine, FeedWriter(assignment.feeds))
    num_streams = streams_of(assignment.plan, assignment.stage)
    return WindowedEngine(engine, num_streams) if num_streams else engine


def _targets(plan: Plan, stage: StagePlan) -> Mapping[int, Target]:
    targets = {
        edge.target: Target(
            bridge=None if edge.bridge is None else cast("BridgeFactory", resolve(edge.bridge)),
            together=together_on(edge),
        )
        for edge in plan.edges
        if edge.source == stage.stage_id
    }
    if stage.final_output_type is not None:
        targets[CALLER] = Target(bridge=None)
    return targets


def _leave(code: int) -> NoReturn:
    with contextlib.suppress(OSError):  # nobody reads it: the code tells how it ended all the same
        sys.stdout.flush()
        sys.stderr.flush()
    # Not through interpreter shutdown: threads that a library left must not keep the stage alive.
    os._exit(code)


if __name__ == "__main__":
    _leave(main())
