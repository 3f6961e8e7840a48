"""Replicas of one stage that are killed under load, and whom that may concern."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from stagemesh.errors import StageFailedError
from stagemesh.runtime.health import ReplicaHealth, ReplicaState
from stagemesh.runtime.outputs import StageProgress, StageState
from stagemesh.runtime.replica import ReplicaId
from tests.runtime.started import Started


class Hunter:
    """Kills the replicas of one stage in turn, and knows which processes those were."""

    def __init__(self, started: Started, stage: str) -> None:
        """Has killed nobody yet."""
        self.started: Final = started
        self.stage: Final = stage
        self.killed: Final[set[int]] = set()
        [found] = [each for each in started.omni.plan.stages if each.name == stage]
        self._number = found.stage_id
        self._turn = itertools.cycle(range(len(found.replicas)))

    async def strike(self) -> None:
        """Kill the next one while it serves somebody; wait until that is known.

        Another one serves as well: no request finds the stage empty.
        """
        replica = next(self._turn)
        await self.started.until(lambda: self._may_die(replica))
        seat = self._seats()[replica]
        assert seat.pid is not None, "it serves"
        self.killed.add(seat.pid)
        os.kill(seat.pid, signal.SIGKILL)
        await self.started.until(lambda: self._seats()[replica].num_restarts > seat.num_restarts)

    def place(self, replica: int) -> ReplicaId:
        """Where a replica of the stage is."""
        return ReplicaId(stage=self._number, replica=replica)

    def _may_die(self, replica: int) -> bool:
        serving = [each.replica for each in self._seats() if each.state is ReplicaState.SERVING]
        is_busy = self.started.in_flight()[self._number][replica] > 0
        return replica in serving and len(serving) > 1 and is_busy

    def _seats(self) -> Sequence[ReplicaHealth]:
        [stage] = [each for each in self.started.omni.health().stages if each.stage == self.stage]
        return stage.replicas


class Bond:
    """Hears which process of the hunted stage a request is bound to."""

    def __init__(self, hunter: Hunter) -> None:
        """Has heard nothing."""
        self.has_output = False
        """Whether the user has heard anything of it; for the user to say."""
        self._hunter = hunter
        self._replica: int | None = None
        self._pid: int | None = None

    def __call__(self, news: StageProgress) -> None:
        """Hear."""
        if news.stage == self._hunter.stage and news.state is StageState.WAITING:
            self._replica = news.replica
            self._pid = self._hunter.started.omni.pids.get(self._hunter.place(news.replica))

    def check(self, error: StageFailedError) -> None:
        """The request has failed: it was for the death of that process, and the error says so."""
        assert (error.stage, error.replica) == (self._hunter.stage, self._replica), error
        name = f"stage `{error.stage}` replica `{error.replica}`"
        assert str(error).startswith(f"{name} was killed by SIGKILL"), error
        assert error.retryable is not self.has_output, error
        # one whose end was known when the request was bound has no process any more
        assert self._pid is None or self._pid in self._hunter.killed, error


Ask: TypeAlias = Callable[[random.Random, Bond], Awaitable[bool]]
"""Makes one request, checks what it says, and tells whether it was heard to its end."""


class Traffic:
    """Streams that ask all the time; counts what becomes of their requests."""

    def __init__(self, hunter: Hunter, streams: Sequence[Ask]) -> None:
        """Nothing runs yet."""
        self.num_answered = 0
        self.num_left = 0
        self.num_hit = 0
        self._hunter = hunter
        self._streams = streams
        self._is_over = False

    async def under_fire(self, num_strikes: int, pause_s: float = 0.0) -> None:
        """Keep all streams busy while so many replicas are killed; answers come in between."""
        self._is_over = False
        async with asyncio.TaskGroup() as running:
            for number, ask in enumerate(self._streams):
                running.create_task(self._stream(ask, random.Random(number)))  # noqa: S311  traffic
            for _ in range(num_strikes):
                await self._more(pause_s)
                await self._hunter.strike()
            await self._more(pause_s)
            self._is_over = True

    async def _more(self, pause_s: float) -> None:
        """Wait for so long, and for as many more answers as there are streams."""
        await asyncio.sleep(pause_s)
        wanted = self.num_answered + len(self._streams)
        await self._hunter.started.until(lambda: self.num_answered >= wanted)

    async def _stream(self, ask: Ask, rng: random.Random) -> None:
        while not self._is_over:
            bond = Bond(self._hunter)
            try:
                is_whole = await ask(rng, bond)
            except StageFailedError as error:
                bond.check(error)
                self.num_hit += 1
            else:
                self.num_answered += is_whole
                self.num_left += not is_whole
