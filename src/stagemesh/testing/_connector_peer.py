"""One end of an edge in a process of its own, for the suite of connectors to kill."""

from __future__ import annotations

import json
import os
import socket
import sys
from struct import Struct
from typing import Final, cast

from stagemesh.connectors._memory import aligned
from stagemesh.runtime.options import typed
from stagemesh.spec.connector import ReceiverFactory, SenderFactory, Ticket
from stagemesh.spec.payload import Payload
from stagemesh.spec.reference import resolve
from stagemesh.testing.connector_edge import payload_of

_HEAD: Final = Struct(">BQQQ?")
"""Lengths of word, body and bulk, the number of the ticket, and whether there is one."""
_MAX_FDS: Final = 8


class Line:
    """Words and tickets over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over `sock`."""
        self._sock = sock

    def send(self, word: str, ticket: Ticket | None = None) -> None:
        """Say a word, with a ticket; its descriptors are closed here."""
        given = ticket or Ticket(number=0, body=b"")
        bulk = b"".join(given.bulk)
        lengths = (len(word), len(given.body), len(bulk))
        head = _HEAD.pack(*lengths, given.number, ticket is not None)
        socket.send_fds(self._sock, [head], list(given.fds))
        self._sock.sendall(word.encode() + given.body + bulk)
        for fd in given.fds:
            os.close(fd)

    def receive(self) -> tuple[str, Ticket | None]:
        """Wait for a word."""
        head, fds, _, _ = socket.recv_fds(self._sock, _HEAD.size, _MAX_FDS)
        word_bytes, body_bytes, bulk_bytes, number, is_ticket = _HEAD.unpack(head)
        word, body = bytes(self._take(word_bytes)).decode(), bytes(self._take(body_bytes))
        bulk = (self._take(bulk_bytes).toreadonly(),) if bulk_bytes else ()
        ticket = Ticket(number=number, body=body, fds=tuple(fds), bulk=bulk)
        return word, ticket if is_ticket else None

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _take(self, num_bytes: int) -> memoryview:
        room = aligned(num_bytes)
        done = 0
        while done < num_bytes:
            count = self._sock.recv_into(room[done:])
            if not count:
                raise EOFError("the other end is gone")
            done += count
        return room


def main() -> None:
    """Do what the other end says until this process is killed."""
    line = Line(socket.socket(fileno=int(sys.argv[1])))
    job = json.loads(sys.argv[2])
    options = typed(cast("type[object]", resolve(job["type"])), job["options"])
    if job["role"] == "send":
        sender = cast("SenderFactory", resolve(job["end"]))(options)
        while True:
            size, _ = line.receive()
            line.send("sent", sender.put(payload_of(int(size))))
    receiver = cast("ReceiverFactory", resolve(job["end"]))(options, lambda _number: None)
    held: list[Payload | Ticket] = []
    while True:
        word, ticket = line.receive()
        assert ticket is not None
        held.append(receiver.get(ticket) if word == "get" else ticket)
        line.send("got" if word == "get" else "kept")
