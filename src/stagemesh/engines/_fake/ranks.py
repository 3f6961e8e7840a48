"""The `fake` engine on several ranks, which shows that all of them are asked the same.

Every rank plays the whole program and keeps a digest of all that it was asked. After each step they
meet: each hands its digest and its slice of every output buffer to rank 0, which compares the ones,
puts the others together, and lets all go on. So a step ends nowhere before it has begun everywhere,
an output is right only if every rank had the input, and a rank that is missing holds up the others.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from struct import Struct as Layout
from typing import Final

from stagemesh.engines._fake.engine import FakeEngine
from stagemesh.spec.engine import Engine, EngineContext, EngineOutput, EngineRequest, Rendezvous
from stagemesh.spec.payload import Buffer, MetaValue, Payload

_LENGTH: Final = Layout(">Q")
_RANK: Final = Layout(">I")
_DIGEST_BYTES: Final = 16
_GO_ON: Final = b"\x01"


def fake_engine(context: EngineContext) -> Engine:
    """Return the engine of one rank."""
    return FakeEngine(context) if context.world_size == 1 else RankedFakeEngine(context)


class RankedFakeEngine(FakeEngine):
    """See the module; `call` takes `digest` as well, which returns that of all ranks."""

    def __init__(self, context: EngineContext) -> None:
        """Take the program, and the place in the replica."""
        assert context.rendezvous is not None, "the runtime says where ranks meet"
        self._circle = _Circle(context.rank, context.world_size, context.rendezvous)
        self._place = (context.rank, context.world_size)
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        super().__init__(context)

    def load(self) -> None:
        """Meet the other ranks."""
        super().load()
        self._circle.meet()

    def add(self, request: EngineRequest) -> None:
        """Take a request."""
        self._note("add", request.request_id, sorted(request.params.items()))
        super().add(request)

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Copy one input."""
        self._note("append", request_id, sorted(payload.meta.items()), last)
        for buffer in payload.buffers:
            self._note(buffer.name, buffer.dtype, buffer.shape)
            self._digest.update(buffer.data)
        super().append(request_id, payload, last=last)

    def step(self) -> list[EngineOutput]:
        """Serve the oldest requests that can go on, together with the other ranks."""
        outputs = super().step()
        self._note("step", [(one.request_id, one.finish, one.error) for one in outputs])
        slices = b"".join(self._slice(buffer) for buffer in _buffers(outputs))
        found = [one[_DIGEST_BYTES:] for one in self._compare(slices)]
        return _joined(outputs, found) if found else outputs

    def pause(self, request_id: str) -> None:
        """Hold a request back."""
        self._note("pause", request_id)
        super().pause(request_id)

    def resume(self, request_id: str) -> None:
        """Let a request go on."""
        self._note("resume", request_id)
        super().resume(request_id)

    def cancel(self, request_id: str) -> None:
        """Forget a request."""
        self._note("cancel", request_id)
        super().cancel(request_id)

    def open_session(self, session: str) -> None:
        """Remember a session."""
        self._note("open_session", session)
        super().open_session(session)

    def close_session(self, session: str) -> None:
        """Forget a session."""
        self._note("close_session", session)
        super().close_session(session)

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """Compare digests for `digest`; raise `RuntimeError` when they differ."""
        self._note("call", name, sorted(args.items()))
        if name != "digest":
            return super().call(name, args)
        found = [one.hex() for one in self._compare(b"")]
        return {"digests": [*found]}

    def close(self) -> None:
        """Forget everything."""
        super().close()
        self._circle.close()

    def _note(self, *what: object) -> None:
        self._digest.update(repr(what).encode())

    def _slice(self, buffer: Buffer) -> memoryview:
        rank, num_ranks = self._place
        size = len(buffer.data)
        return buffer.data[size * rank // num_ranks : size * (rank + 1) // num_ranks]

    def _compare(self, data: bytes) -> Sequence[bytes]:
        """Give a digest and `data` to rank 0, which gets those of all."""
        found = self._circle.gather(self._digest.digest() + data)
        for rank, one in enumerate(found):
            if one[:_DIGEST_BYTES] != found[0][:_DIGEST_BYTES]:
                raise RuntimeError(f"rank `{rank}` was not asked what rank `0` was")
        return found


def _buffers(outputs: Sequence[EngineOutput]) -> Sequence[Buffer]:
    return [
        buffer for output in outputs for payload in output.payloads for buffer in payload.buffers
    ]


def _joined(outputs: Sequence[EngineOutput], slices: Sequence[bytes]) -> list[EngineOutput]:
    """The outputs with what all ranks have made of them."""
    taken = [0] * len(slices)

    def join(buffer: Buffer) -> Buffer:
        whole = bytearray()
        size = len(buffer.data)
        for rank, data in enumerate(slices):
            share = size * (rank + 1) // len(slices) - size * rank // len(slices)
            whole += data[taken[rank] : taken[rank] + share]
            taken[rank] += share
        return replace(buffer, data=memoryview(bytes(whole)))

    def joined(payload: Payload) -> Payload:
        return replace(payload, buffers=tuple(map(join, payload.buffers)))

    return [replace(one, payloads=tuple(map(joined, one.payloads))) for one in outputs]


class _Circle:
    """The ranks of a replica: everybody gives, rank 0 takes, and nobody leaves before that."""

    def __init__(self, rank: int, num_ranks: int, rendezvous: Rendezvous) -> None:
        self._rank = rank
        self._num_ranks = num_ranks
        self._rendezvous = rendezvous
        self._peers: dict[int, socket.socket] = {}

    def meet(self) -> None:
        """Find the others; rank 0 waits for them."""
        if self._rank > 0:
            sock = socket.create_connection((self._rendezvous.address, self._rendezvous.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(_RANK.pack(self._rank))
            self._peers[0] = sock
            return
        assert self._rendezvous.listener is not None, "rank 0 listens"
        with socket.socket(fileno=self._rendezvous.listener) as listener:
            while len(self._peers) < self._num_ranks - 1:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                (rank,) = _RANK.unpack(_received(sock, _RANK.size))
                self._peers[rank] = sock

    def gather(self, data: bytes) -> Sequence[bytes]:
        """Give `data`; rank 0 gets everybody's in order, the others nothing."""
        if self._rank > 0:
            self._peers[0].sendall(_LENGTH.pack(len(data)) + data)
            _received(self._peers[0], len(_GO_ON))
            return []
        found = [data]
        for rank in range(1, self._num_ranks):
            (length,) = _LENGTH.unpack(_received(self._peers[rank], _LENGTH.size))
            found.append(_received(self._peers[rank], length))
        for sock in self._peers.values():
            sock.sendall(_GO_ON)
        return found

    def close(self) -> None:
        """Leave."""
        for sock in self._peers.values():
            sock.close()
        self._peers.clear()


def _received(sock: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        got = sock.recv(length - len(data))
        if not got:
            raise ConnectionError("another rank has left")
        data += got
    return bytes(data)
