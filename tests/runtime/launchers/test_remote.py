"""A replica that another start runs, as the head sees it."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stagemesh.runtime import messages
from stagemesh.runtime.launchers import remote as remote_module
from stagemesh.runtime.launchers.remote import RemoteProcess
from stagemesh.runtime.messages import (
    FRAME_HEAD,
    Fatal,
    Gone,
    Kill,
    Message,
    PeerAt,
    PeerUp,
    Ready,
    Stop,
    Submit,
    Welcome,
)
from stagemesh.runtime.process import Incarnation, Start
from stagemesh.runtime.transport.handshake import Hello
from stagemesh.testing.connector_conformance import open_fds
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.waiting import WAIT_S

STAGE = fake_plan(three_stages()).stage(1)
HELLO = Hello(role="replica", stage=1, replica=0, incarnation=1, fingerprint="")


class Seat:
    """A remote process, its host's end of the stream, and what was heard of its end."""

    def __init__(self) -> None:
        """Nobody has come yet."""
        self.exits: list[str] = []
        who = Incarnation(stage="talker", replica=0)
        self.process = RemoteProcess(
            Start(
                who=who,
                stage=STAGE,
                saved_plan="",
                on_exit=self.exits.append,
                on_blame=lambda _blame: None,
            )
        )

    def come(self) -> None:
        """The host comes."""
        self.host, ours = socket.socketpair()
        self.host.setblocking(False)  # noqa: FBT003  signature of the standard library
        self.process.seat(HELLO, ours)

    def say(self, message: Message) -> None:
        """The host says something."""
        self.host.send(messages.encode(message))

    async def heard(self, num_messages: int) -> list[Message]:
        """What the host hears."""
        loop = asyncio.get_running_loop()
        found = []
        for _ in range(num_messages):
            head = await asyncio.wait_for(loop.sock_recv(self.host, FRAME_HEAD.size), WAIT_S)
            length, _, _ = FRAME_HEAD.unpack(head)
            body = await loop.sock_recv(self.host, length) if length else b""
            found.append(messages.decode(body))
        return found

    async def ended(self) -> str:
        """How it ended, which is told once."""
        reason = await asyncio.wait_for(self.process.exited, WAIT_S)
        assert self.exits == [reason]
        assert not self.process.alive
        return reason


def seated(work: Callable[[Seat], Coroutine[Any, Any, None]], *, comes: bool = True) -> None:
    """Run `work` with a seat, and see that no descriptor is left."""

    async def run() -> None:
        before = open_fds()
        seat = Seat()
        if comes:
            seat.come()
        await work(seat)
        if comes:
            seat.host.close()
        assert open_fds() == before

    asyncio.run(run())


def test_what_is_said_before_somebody_comes_is_said_then() -> None:
    """In order, before what is said later."""

    async def work(seat: Seat) -> None:
        up = PeerUp(stage=0, replica=0)
        word = PeerAt(stage=0, replica=0, incarnation=0, link=7, address="", port=0)
        met = seat.process.meet(up, word)
        seat.process.say(Welcome())
        assert seat.process.is_free
        seat.come()
        assert not seat.process.is_free
        seat.process.say(Stop())
        assert await seat.heard(3) == [word, Welcome(), Stop()]
        seat.say(Ready(load_s=0.5, values={"engine": "fake"}))
        assert await asyncio.wait_for(seat.process.ready, WAIT_S) == 0.5
        assert seat.process.values == {"engine": "fake"}
        assert not met.done()
        seat.host.close()
        assert await seat.ended() == "its host is gone"
        assert met.done()

    seated(work, comes=False)


def test_its_host_tells_how_it_ended() -> None:
    """With the last words of the process, unless the reason is known."""

    async def work(seat: Seat) -> None:
        seat.say(Gone(reason="exited with code 3", words="no such file"))
        seat.host.close()
        assert await seat.ended() == "exited with code 3"
        assert seat.process.last_words() == "no such file"

    async def known(seat: Seat) -> None:
        seat.say(Fatal(reason="no weights"))
        seat.say(Gone(reason="exited with code 1", words="a traceback"))
        seat.host.close()
        assert await seat.ended() == "failed: no weights"
        assert seat.process.last_words() == ""

    seated(work)
    seated(known)


def test_a_host_is_asked_to_end_it_and_has_its_time() -> None:
    """Once; a softer signal is nothing that can be carried."""

    async def work(seat: Seat) -> None:
        seat.process.kill(signal.SIGTERM)
        seat.process.lost("it did not answer")
        seat.process.kill()
        assert await seat.heard(1) == [Kill()]
        seat.say(Gone(reason="was killed by SIGKILL", words=""))
        seat.host.close()
        assert await seat.ended() == "failed: it did not answer"

    seated(work)


def test_a_host_that_does_not_end_it_loses_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is as good as ended, here and, by the end of the stream, there."""
    monkeypatch.setattr(remote_module, "GONE_S", 0.01)

    async def work(seat: Seat) -> None:
        seat.process.kill()
        assert await seat.ended() == "its host is gone"

    seated(work)


def test_it_can_be_ended_from_another_thread() -> None:
    """At once, whether somebody has come or not."""

    async def work(seat: Seat) -> None:
        thread = threading.Thread(target=seat.process.kill)
        thread.start()
        await asyncio.to_thread(thread.join)
        await seat.ended()

    seated(work)
    seated(work, comes=False)


def test_a_seat_for_which_nobody_comes_is_taken_away() -> None:
    """Whoever waits for it hears of it, and nobody can sit down any more."""

    async def work(seat: Seat) -> None:
        seat.process.kill()
        assert await seat.ended() == "was not waited for any longer"
        assert not seat.process.is_free
        assert seat.process.seated.cancelled()
        up = PeerUp(stage=0, replica=0)
        word = PeerAt(stage=0, replica=0, incarnation=0, link=7, address="", port=0)
        assert seat.process.meet(up, word).done()

    seated(work, comes=False)


def test_a_host_that_says_what_it_must_not_is_ended() -> None:
    """The reason is told."""

    async def work(seat: Seat) -> None:
        seat.say(Submit(key=messages.Key(rid="r", epoch=0), params={}, targets={}))
        assert await seat.ended() == "failed: a stage does not say `Submit` here"

    seated(work)
