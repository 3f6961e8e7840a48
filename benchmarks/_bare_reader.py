"""The floor of what chunks cost their reader: the same frames from one socket, decoded, no more.

Nothing is routed, ordered, acknowledged or handed to anybody. Another process sends the frames as
the last stage does, those of one step of a replica together, at the same pace.
"""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from typing import Final

from _hops import in_child
from _streams import Load, cpu_s

from stagemesh.connectors import _wire
from stagemesh.runtime import messages
from stagemesh.runtime.messages import FRAME_HEAD, Chunk, Key
from stagemesh.spec.payload import Buffer, Payload

_READ_BYTES: Final = 64 * 1024


def bare_reader_us(load: Load) -> float:
    """Microseconds of CPU for each chunk of a load, after one to warm up."""
    _read(load)
    return _read(load)


def _read(load: Load) -> float:
    sock, pid = in_child(partial(_send, load))
    room = memoryview(bytearray(_READ_BYTES))
    before, count, filled = cpu_s([os.getpid()]), 0, 0
    while came := sock.recv_into(room[filled:]):
        filled, begin = filled + came, 0
        while filled - begin >= FRAME_HEAD.size:
            length, _, _ = FRAME_HEAD.unpack_from(room, begin)
            end = begin + FRAME_HEAD.size + length
            if end > filled:
                break
            chunk = messages.decode(room[begin + FRAME_HEAD.size : end])
            assert isinstance(chunk, Chunk)
            _wire.decode(chunk.body)
            begin, count = end, count + 1
        room[: filled - begin] = room[begin:filled]
        filled -= begin
    used = cpu_s([os.getpid()]) - before
    sock.close()
    os.waitpid(pid, 0)
    assert count == load.streams * load.chunks
    return 1e6 * used / count


def _send(load: Load, sock: socket.socket) -> None:
    data = memoryview(bytes(load.chunk_bytes))
    audio = Buffer(name="audio", dtype="uint8", shape=(load.chunk_bytes,), data=data)
    headers = _wire.headers_of(Payload(buffers=(audio,)))
    body = _wire.encode(_wire.Header(meta={}, buffers=headers, place=_wire.Inline(data=data)))
    chunk = Chunk(key=Key(rid="stream", epoch=1), seq=1, number=1, body=body, last=False, at=1.0)
    together = messages.encode(chunk) * (load.streams // load.replicas)
    for _ in range(load.chunks * load.replicas):
        time.sleep(load.step_s / load.replicas)
        sock.sendall(together)
    sock.close()
