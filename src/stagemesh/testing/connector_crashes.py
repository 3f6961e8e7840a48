"""The part of the suite of connectors where one end is another process, and is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from stagemesh.config.plain import plain_fields
from stagemesh.spec.connector import (
    ConnectorSpec,
    Reach,
    Receiver,
    ReceiverFactory,
    Sender,
    SenderFactory,
)
from stagemesh.spec.reference import resolve
from stagemesh.testing._connector_peer import Line
from stagemesh.testing.connector_edge import held, payload_of

_START = "from stagemesh.testing._connector_peer import main; main()"


class Peer:
    """Another process that is one end of an edge."""

    def __init__(self, spec: ConnectorSpec, options: object, role: str) -> None:
        """Start it; `role` is `send` or `receive`."""
        ours, theirs = socket.socketpair()
        kind = type(options)
        job = {
            "role": role,
            "end": spec.sender if role == "send" else spec.receiver,
            "type": f"{kind.__module__}:{kind.__qualname__}",
            "options": plain_fields(options),
        }
        self._process = subprocess.Popen(  # noqa: S603  the interpreter that runs this
            [sys.executable, "-c", _START, str(theirs.fileno()), json.dumps(job)],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        self.line = Line(ours)

    def kill(self) -> None:
        """Kill it, as a machine short of memory would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.line.close()


class ConnectorCrashes:
    """What a connector does when the process at its other end is killed."""

    spec: ConnectorSpec
    options: object
    room_bytes: int = 32 * 1024

    def held(self) -> object:
        """What this process holds of edges; it must be the same afterwards."""
        return held()

    def leftovers(self) -> set[str]:
        """Whatever the connector keeps outside this process, such as keys of a store."""
        return set()

    def settled(self, before: set[str]) -> None:
        """Check that nothing is left outside, once the death of a process has been noticed."""
        assert self.leftovers() == before

    @contextmanager
    def _peer(self, role: str) -> Iterator[Peer]:
        """A process at the other end; afterwards nothing of it may be left here."""
        if self.spec.reach is Reach.PROCESS:
            pytest.skip("both ends die together")
        before, left = self.held(), self.leftovers()
        peer = Peer(self.spec, self.options, role)
        try:
            yield peer
        finally:
            peer.kill()
        assert self.held() == before
        self.settled(left)

    def _sender(self) -> Sender:
        return cast("SenderFactory", resolve(self.spec.sender))(self.options)

    def _receiver(self, acks: list[int]) -> Receiver:
        return cast("ReceiverFactory", resolve(self.spec.receiver))(self.options, acks.append)

    @pytest.mark.parametrize("is_got", [False, True], ids=["before get", "before release"])
    def test_a_killed_receiver_leaves_nothing(self, is_got: bool) -> None:  # noqa: FBT001  a case
        """The sender frees what the other process had, or was about to have."""
        with self._peer("receive") as peer:
            sender = self._sender()
            for size in (1000, self.room_bytes, 4 * self.room_bytes):
                ticket = sender.put(payload_of(size))
                assert ticket is not None
                peer.line.send("get" if is_got else "keep", ticket)
                assert peer.line.receive()[0] == ("got" if is_got else "kept")
            peer.kill()
            sender.close()

    @pytest.mark.parametrize("is_got", [False, True], ids=["before get", "before release"])
    def test_a_killed_sender_leaves_nothing(self, is_got: bool) -> None:  # noqa: FBT001  a case
        """What was got stays readable; a ticket on its way is read or a `ValueError`."""
        with self._peer("send") as peer:
            acks: list[int] = []
            receiver = self._receiver(acks)
            sizes = (1000, self.room_bytes, 4 * self.room_bytes)
            tickets = []
            for size in sizes:
                peer.line.send(str(size))
                word, ticket = peer.line.receive()
                assert word == "sent"
                assert ticket is not None
                tickets.append(ticket)
            if is_got:
                payloads = [receiver.get(ticket) for ticket in tickets]
                peer.kill()
                assert payloads == [payload_of(size) for size in sizes]
            else:
                peer.kill()
                payloads = []
                for ticket in tickets:
                    try:
                        payloads.append(receiver.get(ticket))
                    except ValueError:
                        continue
            num_got = len(payloads)
            while payloads:
                payloads.pop().release()
            assert len(acks) == num_got
            receiver.close()
