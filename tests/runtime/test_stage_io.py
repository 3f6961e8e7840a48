"""The I/O thread of a stage alone: streams that are replaced, and peers that talk nonsense."""

from __future__ import annotations

import array
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from stagemesh.plan.save import to_json
from stagemesh.runtime import messages
from stagemesh.runtime.inbox import Add, Inbox
from stagemesh.runtime.messages import (
    FRAME_HEAD,
    PROTOCOL,
    Blame,
    Failed,
    Key,
    Message,
    Met,
    PeerUp,
    Ping,
    Pong,
    Setup,
    Submit,
    Welcome,
)
from stagemesh.runtime.stage_io import StageIO
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.waiting import WAIT_S

SETUP: Final = Setup(protocol=PROTOCOL, plan=to_json(fake_plan(three_stages())), stage=1, replica=0)
GARBAGE: Final = b"\xff" * 64


class Talker:
    """A stage's I/O thread, with the other end of its control stream."""

    def __init__(self, stack: ExitStack) -> None:
        """Start it as the talker."""
        self._stack = stack
        self.control, theirs = socket.socketpair()
        stack.enter_context(self.control)
        self.control.settimeout(WAIT_S)
        self.inbox = Inbox()
        self._io = StageIO(theirs, self.inbox)
        self._read = b""
        self.say(SETUP)
        self.say(Welcome())
        self._io.start()
        stack.callback(self._io.stop)

    def say(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Be the supervisor."""
        frame = messages.encode(message, len(fds))
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.control.sendmsg([frame], ancillary)

    def hear(self) -> Message:
        """What it says next."""
        while True:
            if len(self._read) >= FRAME_HEAD.size:
                end = FRAME_HEAD.size + FRAME_HEAD.unpack_from(self._read)[0]
                if len(self._read) >= end:
                    body, self._read = self._read[FRAME_HEAD.size : end], self._read[end:]
                    return messages.decode(body)
            data = self.control.recv(4096)
            assert data, "it has closed its stream"
            self._read += data

    def meet(self, stage: int | None, incarnation: int = 0) -> socket.socket:
        """Introduce a peer; return what is to be its end."""
        ours, theirs = socket.socketpair()
        self._stack.enter_context(ours)
        ours.settimeout(WAIT_S)
        self.say(PeerUp(stage=stage, replica=0, incarnation=incarnation), (theirs.fileno(),))
        theirs.close()
        assert self.hear() == Met(stage=stage, replica=0, incarnation=incarnation)
        return ours


@pytest.fixture
def talker() -> Iterator[Talker]:
    """One that runs."""
    with ExitStack() as stack:
        yield Talker(stack)


@pytest.mark.parametrize("stage", [0, 2, None], ids=["producer", "consumer", "caller"])
def test_a_peer_that_talks_nonsense_is_reported_and_left(talker: Talker, stage: int | None) -> None:
    """With what was wrong; the stage goes on, and answers."""
    peer = talker.meet(stage, incarnation=3)
    peer.sendall(GARBAGE)
    blame = talker.hear()
    assert isinstance(blame, Blame)
    assert (blame.stage, blame.replica, blame.incarnation) == (stage, 0, 3)
    assert blame.reason
    assert peer.recv(1) == b"", "its stream is closed"
    talker.say(Ping(number=7))
    assert talker.hear() == Pong(number=7, step_s=0.0)


def test_a_peer_that_is_gone_is_nobodys_fault(talker: Talker) -> None:
    """Its end is the supervisor's affair; the next one takes its place."""
    talker.meet(0).close()
    fresh = talker.meet(0, incarnation=1)
    fresh.sendall(GARBAGE)
    blame = talker.hear()
    assert isinstance(blame, Blame)
    assert blame.incarnation == 1


def test_a_new_stream_to_a_peer_replaces_the_old_one(talker: Talker) -> None:
    """The old one is closed even if its other end lives on."""
    old = talker.meet(0)
    talker.meet(0, incarnation=1)
    assert old.recv(1) == b""


def test_an_answer_says_how_long_the_engine_is_away(talker: Talker) -> None:
    """The I/O thread answers while the engine is in a step."""
    talker.inbox.take(wait=False)
    talker.say(Ping(number=1))
    answer = talker.hear()
    assert isinstance(answer, Pong)
    assert answer.step_s > 0


def test_a_request_for_a_process_that_was_replaced_is_refused(talker: Talker) -> None:
    """The next one of that replica has not heard of it, and never will."""
    caller = talker.meet(None)
    talker.meet(2, incarnation=0)
    talker.meet(2, incarnation=1)
    for epoch, incarnation in enumerate((0, 1, 2)):
        key = Key(rid=f"for {incarnation}", epoch=epoch)
        caller.sendall(messages.encode(Submit(key=key, params={}, targets={2: (0, incarnation)})))
    refused: set[str] = set()
    read = b""
    while len(refused) < 2:
        read += caller.recv(4096)
        while read:
            end = FRAME_HEAD.size + FRAME_HEAD.unpack_from(read)[0]
            answer = messages.decode(read[FRAME_HEAD.size : end])
            assert isinstance(answer, Failed)
            assert answer.message == "its next stage is gone"
            refused.add(answer.key.rid)
            read = read[end:]
    assert refused == {"for 0", "for 2"}
    (add,) = talker.inbox.take(wait=True)
    assert isinstance(add, Add)
    assert (add.key.rid, add.targets) == ("for 1", (2,))
