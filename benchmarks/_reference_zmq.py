"""Another way that peers use: ZeroMQ between two processes, the payload inside MessagePack.

PUSH and PULL sockets over `ipc` carry the payloads, packed with their metadata, and another pair
carries the word that one has been read. Written from that description alone.
"""

from __future__ import annotations

import importlib
import os
import socket
import tempfile
from typing import Any, Final

import msgspec
from _hops import in_child, repetitions, times_of

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder()


def hop_times(size: int) -> list[float]:
    """Microseconds from handing over a payload to the word that it has been read.

    Raises `ModuleNotFoundError` where the package `pyzmq` is missing.
    """
    zmq: Any = importlib.import_module("zmq")
    with tempfile.TemporaryDirectory() as folder:
        there, back = f"ipc://{folder}/there", f"ipc://{folder}/back"
        total = repetitions(size)

        def consume(sock: socket.socket) -> None:
            context = zmq.Context()
            pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
            pull.connect(there)
            push.connect(back)
            while True:
                message = _decoder.decode(pull.recv())
                push.send(bytearray(message["data"])[:1])
                if message["last"]:
                    sock.recv(1)  # the other end closes first, so that nothing is dropped
                    context.destroy()
                    return

        sock, pid = in_child(consume)
        context = zmq.Context()
        push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        push.bind(there)
        pull.bind(back)
        data = memoryview(os.urandom(size))

        def send(*, last: bool) -> None:
            push.send(_encoder.encode({"shape": [size], "data": data.tobytes(), "last": last}))
            pull.recv()

        times = times_of(lambda: send(last=False), total)
        send(last=True)
        sock.close()
        os.waitpid(pid, 0)
        context.destroy()
    return times
