"""What one hop between two stage processes costs, beside what it could cost and what peers pay.

`edge` is one payload over stream and connector to another process, and its acknowledgement back,
beside one memcpy of the same bytes into equally warm memory, made after each hop, and the bare
round trip of 64 bytes over a socket. `copied` counts the bytes that the producer writes to shared
memory and to sockets. `stage` is the time that one more echoing stage adds to a request, both
threads included; `stage_colocated` is the same for stages that share one process. Times are
medians; `best` is the fastest, which a busy machine disturbs least, and `p99` is reported only.
`memcpy_share` is how near the best hop comes to the best copy: 1 when
it costs nothing more. The references are ways that other systems use, each in a file of its own,
from hand-over to the word that the payload has been read, as for the edge.

    python benchmarks/stage_hop.py
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import _reference_shm_poll
import _reference_zmq
from _edge import edge_and_copy_times, edge_times
from _hops import WARM_UP, in_child, repetitions, summary, times_of

from stagemesh.connectors import _arena, shared_memory
from stagemesh.runtime import messages
from stagemesh.runtime.edge import Connector
from stagemesh.runtime.messages import Message
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.testing.fake_plan import FakeStage, fake_plan

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4 KiB": 4 * KIB, "64 KiB": 64 * KIB, "1 MiB": MIB, "16 MiB": 16 * MIB, "64 MiB": 64 * MIB}
REFERENCES = {
    "segment_lock_file_poll": _reference_shm_poll.hop_times,
    "zeromq_msgpack": _reference_zmq.hop_times,
}
SHARED = Connector(spec=shared_memory.CONNECTOR, options=shared_memory.SharedMemoryOptions())


def echo(sock: socket.socket) -> None:
    """Send back what comes, blocking."""
    while data := sock.recv(64):
        sock.sendall(data)


def socket_times() -> list[float]:
    """The bare round trip of 64 bytes to another process."""
    sock, pid = in_child(echo)

    def ping() -> None:
        sock.sendall(b"x" * 64)
        sock.recv(64)

    found = times_of(ping, 2000)
    sock.close()
    os.waitpid(pid, 0)
    return found


@contextmanager
def counting() -> Iterator[list[int]]:
    """Count bytes written to shared memory and to sockets, one entry each time."""
    copied: list[int] = []
    arena_write, frame_encode = _arena.Arena.write, messages.encode

    def write(arena: _arena.Arena, offset: int, data: memoryview) -> None:
        copied.append(data.nbytes)
        arena_write(arena, offset, data)

    def encode(message: Message, num_fds: int = 0, num_bulk: int = 0) -> bytes:
        frame = frame_encode(message, num_fds, num_bulk)
        copied.append(len(frame) + num_bulk)
        return frame

    with (
        mock.patch.object(_arena.Arena, "write", write),
        mock.patch.object(messages, "encode", encode),
    ):
        yield copied


def edge_of(size: int, socket_floor: list[float]) -> dict[str, float]:
    """Everything about one size."""
    hop, memcpy = edge_and_copy_times(SHARED, size)
    with counting() as copied:
        edge_times(SHARED, size)
    floor = min(memcpy) + min(socket_floor)
    return {
        **summary("hop", hop),
        **summary("memcpy", memcpy),
        "best_over_memcpy_and_socket": round(min(hop) / floor, 2),
        "memcpy_share": round(min(memcpy) / min(hop), 3),
        "copied_over_payload": round(sum(copied) / (repetitions(size) + WARM_UP) / size, 3),
    }


def references_of(size: int, hop_us: float) -> dict[str, object]:
    """What peers pay for one size, and how often our median goes into theirs."""
    found: dict[str, object] = {}
    for name, hop_times in REFERENCES.items():
        try:
            times = hop_times(size)
        except ModuleNotFoundError as error:
            found[name] = f"not measured: {error}"
            continue
        theirs = summary("hop", times)
        found[name] = {**theirs, "over_ours": round(theirs["hop_us"] / hop_us, 1)}
    return found


async def request_times(num_stages: int, size: int, host: int | None = None) -> list[float]:
    """Microseconds of requests with one output of `size` bytes through so many stages.

    All of them share a process with the stage `host`, if there is one.
    """
    first = FakeStage(name="stage-0", args={"num_outputs": 1, "output_bytes": size})
    rest = [FakeStage(name=f"stage-{number}", host=host) for number in range(1, num_stages)]
    stages = [first, *rest]
    stages[-1] = replace(stages[-1], name="last", final="data")
    async with AsyncOmni(fake_plan(stages, arena_bytes=8 * 1024 * 1024)) as omni:
        times = []
        for _ in range(60):
            began = time.perf_counter()
            await omni.run("hop")
            times.append((time.perf_counter() - began) * 1e6)
        return times[10:]


def stages_of(one: list[float], three: list[float]) -> dict[str, float]:
    """What each of two further stages adds to a request."""
    added = (statistics.median(three) - statistics.median(one)) / 2
    return {
        **summary("one_stage", one),
        **summary("three_stages", three),
        "added_per_stage_us": round(added, 1),
        "added_per_stage_best_us": round((min(three) - min(one)) / 2, 1),
    }


def main() -> None:
    """Print everything as JSON."""
    floor = socket_times()
    edges = {name: edge_of(size, floor) for name, size in SIZES.items()}
    peers = {name: references_of(size, edges[name]["hop_us"]) for name, size in SIZES.items()}
    one = asyncio.run(request_times(1, 64 * KIB))
    found = {
        "benchmark": "stage_hop",
        **summary("socket_round_trip", floor),
        "edge": edges,
        "references": peers,
        "stage_64_kib": stages_of(one, asyncio.run(request_times(3, 64 * KIB))),
        "stage_colocated_64_kib": stages_of(one, asyncio.run(request_times(3, 64 * KIB, host=0))),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
