"""The frontend alone, with bare sockets in the place of stages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from stagemesh.connectors._shared_memory import SharedMemorySender
from stagemesh.connectors.shared_memory import SharedMemoryOptions
from stagemesh.errors import StageFailedError
from stagemesh.plan.values import Plan
from stagemesh.runtime import messages
from stagemesh.runtime.frames import FrameReader
from stagemesh.runtime.frontend import Frontend
from stagemesh.runtime.messages import Ack, Chunk, Finished, Key, Message
from stagemesh.runtime.outputs import StageProgress, StageState
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Call, Running
from stagemesh.spec.payload import Payload
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.waiting import WAIT_S

FINAL = fake_plan(three_stages())
PLAN = fake_plan([replace(stage, final=None) for stage in three_stages()])
THINKER, TALKER, VOCODER = (ReplicaId(stage=stage, replica=0) for stage in range(3))
KEY = Key(rid="r", epoch=1)
FINISHED = Finished(key=KEY, units={}, seconds=0.0, first_output_s=None)


class Stages:
    """A frontend and the other ends of its streams."""

    def __init__(self, plan: Plan) -> None:
        """Needs a running loop."""
        pairs = {where: socket.socketpair() for where in (THINKER, TALKER, VOCODER)}
        self.ends = {where: theirs for where, (_, theirs) in pairs.items()}
        self.lost: list[tuple[ReplicaId, str | None]] = []
        self.heard: list[StageProgress] = []
        ours = {where: ours for where, (ours, _) in pairs.items()}
        self.loss = asyncio.Event()
        self.frontend = Frontend(plan, ours, self._on_lost)

    def open(self) -> Running:
        """Submit a request."""
        prompt = Payload(meta={"text": "hi"})
        call = Call(request_id="r", prompt=prompt, on_progress=self.heard.append)
        return self.frontend.open(call)

    def say(self, where: ReplicaId, message: Message) -> None:
        """A stage says something, which the frontend has not read yet."""
        self.ends[where].sendall(messages.encode(message))

    def heard_by(self, where: ReplicaId) -> Iterator[Message]:
        """What a stage has been told so far."""
        reader, end = FrameReader(), self.ends[where]
        end.setblocking(False)  # noqa: FBT003  signature of the standard library
        with contextlib.suppress(BlockingIOError):
            while count := end.recv_into(reader.room):
                yield from [frame.message for frame in reader.received(count)]

    def _on_lost(self, where: ReplicaId, reason: str | None) -> None:
        self.lost.append((where, reason))
        self.loss.set()

    def close(self) -> None:
        """Close all ends."""
        self.frontend.close()
        for end in self.ends.values():
            end.close()


def with_stages(work: Callable[[Stages], Coroutine[Any, Any, None]], plan: Plan = PLAN) -> None:
    """Run `work` and close what is left."""

    async def run() -> None:
        stages = Stages(plan)
        try:
            await asyncio.wait_for(work(stages), WAIT_S)
        finally:
            stages.close()

    asyncio.run(run())


def test_what_had_finished_before_the_death_has_finished() -> None:
    """The last word of a replica that died right after it is read before anything fails."""

    async def work(stages: Stages) -> None:
        running = stages.open()
        for where in (THINKER, TALKER, VOCODER):
            stages.say(where, FINISHED)
        for where in (THINKER, TALKER, VOCODER):
            stages.frontend.down(where, "it died")
        await running.result()

    with_stages(work)


@pytest.mark.parametrize(
    ("seqs", "told"),
    [((1,), "`1` came in place of `0`"), ((0, 1, 2), "`2` came after the last")],
)
def test_outputs_out_of_order_fail_their_request(seqs: tuple[int, ...], told: str) -> None:
    """What came before is given, all tickets go back, and the error names the replica."""

    async def work(stages: Stages) -> None:
        running = stages.open()
        sender = SharedMemorySender(SharedMemoryOptions())
        for seq in seqs:
            ticket = sender.put(Payload(meta={"n": seq}))
            assert ticket is not None
            number, body = ticket.number, ticket.body
            stages.say(VOCODER, Chunk(key=KEY, seq=seq, number=number, body=body, last=seq == 1))
        for seq in seqs[:-1]:
            assert (await anext(running)).payload.meta["n"] == seq
        with pytest.raises(StageFailedError, match=f"`vocoder` replica `0` .*{told}"):
            await anext(running)
        heard = [said for said in stages.heard_by(VOCODER) if isinstance(said, Ack)]
        assert [number for ack in heard for number in ack.numbers] == list(range(len(seqs)))

    with_stages(work, FINAL)


def test_a_stage_that_gives_its_user_nothing_must_not_say_a_chunk() -> None:
    """Whoever ends the replica hears why."""

    async def work(stages: Stages) -> None:
        stages.say(THINKER, Chunk(key=KEY, seq=0, number=0, body=b"", last=True))
        await stages.loss.wait()
        assert stages.lost == [(THINKER, "a stage does not say `Chunk`")]

    with_stages(work)


def test_what_was_said_is_read_although_the_stage_cannot_be_written_to() -> None:
    """A write that fails does not lose what had come before."""

    async def work(stages: Stages) -> None:
        stages.say(THINKER, FINISHED)
        stages.ends[THINKER].close()
        running = stages.open()
        for where in (TALKER, VOCODER):
            stages.say(where, FINISHED)
        await running.result()
        assert stages.lost in ([], [(THINKER, None)])

    with_stages(work)


def test_a_death_that_no_request_tells_of_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A request that the dead replica had already finished is not its victim."""

    async def work(stages: Stages) -> None:
        running = stages.open()
        stages.say(THINKER, FINISHED)
        stages.frontend.down(THINKER, "stage `thinker` replica `0` died")
        for where in (TALKER, VOCODER):
            stages.say(where, FINISHED)
        await running.result()
        assert StageState.FAILED not in {news.state for news in stages.heard}

    with caplog.at_level(logging.WARNING):
        with_stages(work)
    assert caplog.messages == ["stage `thinker` replica `0` died"]


def test_a_death_that_a_request_tells_of_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The error is enough."""

    async def work(stages: Stages) -> None:
        running = stages.open()
        stages.frontend.down(TALKER, "stage `talker` replica `0` died")
        with pytest.raises(StageFailedError, match="died"):
            await running.result()

    with_stages(work)
    assert caplog.messages == []


def test_what_a_stage_must_not_say_is_told_on() -> None:
    """Whoever ends the replica hears why."""

    async def work(stages: Stages) -> None:
        stages.say(TALKER, messages.Stop())
        await stages.loss.wait()
        assert stages.lost == [(TALKER, "a stage does not say `Stop`")]

    with_stages(work)
