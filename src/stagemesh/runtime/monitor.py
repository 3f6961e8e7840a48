"""Asks every replica now and then how it is: finds those that hang, and ends them.

One timer for all of them, so that an idle system wakes as often and no more, and each stage with
it. What loads is not asked: a library may hold the interpreter for long while it is imported.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import Final, Protocol

from stagemesh.runtime.health import ReplicaState
from stagemesh.runtime.process import Process
from stagemesh.runtime.pulse import Pulse
from stagemesh.runtime.replica import Member, ReplicaId

INTERVAL_S: Final = 2.0
"""Time between two questions: at 1 s a tree of six stages would take 0.26 % of a core, idle."""
NUM_SILENT: Final = 3
"""Questions without an answer after which a replica gets no more requests."""
NUM_DEAD: Final = 8
"""Questions without an answer after which it is ended."""
_log: Final = logging.getLogger(__name__)


class Routes(Protocol):
    """Whoever gives requests to replicas."""

    def hold(self, where: ReplicaId) -> None:
        """Give a replica nothing more for now."""
        ...

    def resume(self, where: ReplicaId) -> None:
        """It takes requests again."""
        ...


class Monitor:
    """Watches replicas that serve."""

    def __init__(
        self, members: Iterable[Member], routes: Routes, silence_s: float | None = None
    ) -> None:
        """Begin; `members` are those that there are at the time.

        A process elsewhere may be silent for `silence_s`, in whole questions, where that is said.
        """
        self._num_dead_elsewhere = NUM_DEAD
        if silence_s is not None:
            self._num_dead_elsewhere = math.ceil(silence_s / INTERVAL_S)
        self._members = members
        self._routes = routes
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)
        self.lag_s = 0.0
        """How late the loop was at the last question."""

    def close(self) -> None:
        """Ask no more."""
        self._timer.cancel()

    def _tick(self) -> None:
        self.lag_s = max(self._loop.time() - self._timer.when(), 0.0)
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)
        for member in self._members:
            process = member.running
            if process is not None and member.state in _WATCHED:
                process.ping()
                self._judge(member, process)

    def _judge(self, member: Member, process: Process) -> None:
        limit = member.stage.setup.recovery.step_timeout
        num_dead = self._num_dead_elsewhere if process.pid is None else NUM_DEAD
        if (why := _hangs(process.pulse, num_dead, 2 * limit)) is not None:
            process.lost(why)
            return
        member.reason = _hangs(process.pulse, NUM_SILENT, limit)
        if member.reason is not None and member.state is ReplicaState.SERVING:
            member.state = ReplicaState.UNHEALTHY
            self._routes.hold(member.where)
            _log.warning("%s gets no requests: %s", process.name, member.reason)
        elif member.reason is None and member.state is ReplicaState.UNHEALTHY:
            member.state = ReplicaState.SERVING
            self._routes.resume(member.where)
            _log.warning("%s takes requests again", process.name)


_WATCHED: Final = (ReplicaState.SERVING, ReplicaState.UNHEALTHY)


def _hangs(pulse: Pulse, num_missed: int, step_s: float) -> str | None:
    if pulse.missed >= num_missed:
        return f"{pulse.who} has not answered for {pulse.missed * INTERVAL_S:g} s"
    if pulse.step_s >= step_s:
        return f"its engine has been in one step for {pulse.step_s:.1f} s"
    return None
