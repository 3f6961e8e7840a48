"""What it costs rank 0 to tell the other ranks of one step, beside one bare write to a socket.

`step` is what one step of decoding says, from the call to the return of the last write; all ranks
sleep when it begins, as they do between two steps. `heard` is the time until the last of them has
it in hand and has answered, which it does only here. `socket` is one write of as many bytes to one
other process that sleeps, and its answer. `eventfd` is the other way there would be: the bytes into
memory that is mapped everywhere, and a wake-up of eight bytes for each rank. `input` is a step with
an input of 64 KiB, which is copied once for all of them. Times are medians; `p99` is only reported.

    python benchmarks/rank_broadcast.py
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import time
from collections.abc import Callable, Sequence

from _hops import WARM_UP, in_child, summary

from stagemesh.runtime.ranks.commands import Appended, Step
from stagemesh.runtime.ranks.feed import FeedReader, FeedWriter, feed_pair
from stagemesh.spec.payload import Buffer

NUM_RANKS = (2, 4, 8)
STEPS = 1000
INPUT_BYTES = 64 * 1024
ANSWER = b"\x01"
BARE_BYTES = 72
"""As long as the message of a step without inputs."""
ASLEEP_S = 0.0002
"""Time for the others to fall asleep again after an answer."""


def timed(say: Callable[[], None], hear: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Microseconds of saying something, and until it has been answered."""
    said, heard = [], []
    for _ in range(STEPS + WARM_UP):
        time.sleep(ASLEEP_S)
        began = time.perf_counter()
        say()
        said.append((time.perf_counter() - began) * 1e6)
        hear()
        heard.append((time.perf_counter() - began) * 1e6)
    return said[WARM_UP:], heard[WARM_UP:]


def hear_all(socks: Sequence[socket.socket]) -> None:
    """Take one answer of everybody."""
    for sock in socks:
        sock.recv(1)


def follow(sock: socket.socket, feed: socket.socket) -> None:
    """Be a rank: take in what is said, and answer."""
    reader = FeedReader(feed)
    while reader.take() is not None:
        sock.send(ANSWER)


def feed_times(others: int, say: Callable[[FeedWriter], None]) -> tuple[list[float], list[float]]:
    """Tell so many other ranks."""
    near: list[socket.socket] = []
    answers: list[socket.socket] = []
    pids: list[int] = []
    for _ in range(others):
        ours, theirs = feed_pair()
        before = [ours, *near]

        def child(sock: socket.socket, feed: socket.socket = theirs) -> None:
            for each in before:  # noqa: B023  it is called at once, in a process of its own
                each.close()
            follow(sock, feed)

        answer, pid = in_child(child)
        theirs.close()
        near.append(ours)
        answers.append(answer)
        pids.append(pid)
    writer = FeedWriter(near)
    found = timed(lambda: say(writer), lambda: hear_all(answers))
    writer.close()
    for answer, pid in zip(answers, pids, strict=True):
        answer.close()
        os.waitpid(pid, 0)
    return found


def step(writer: FeedWriter) -> None:
    """One step of decoding."""
    writer.add(Step())
    writer.flush()


def step_with_input(writer: FeedWriter) -> None:
    """One step with an input."""
    heads = writer.hold([BUFFER])
    writer.add(Appended(rid="request", meta={}, heads=heads, last=False, raised=False))
    step(writer)


BUFFER = Buffer(
    name="data", dtype="uint8", shape=(INPUT_BYTES,), data=memoryview(bytes(INPUT_BYTES))
)


def socket_times() -> tuple[list[float], list[float]]:
    """One bare write, and one bare answer."""

    def echo(sock: socket.socket) -> None:
        while sock.recv(4096):
            sock.send(ANSWER)

    sock, pid = in_child(echo)
    data = bytes(BARE_BYTES)

    def say() -> None:
        sock.send(data)

    found = timed(say, lambda: hear_all([sock]))
    sock.close()
    os.waitpid(pid, 0)
    return found


def eventfd_times(others: int) -> list[float]:
    """Bytes into shared memory, and a wake-up for each."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    data = bytes(BARE_BYTES)
    fds = [os.eventfd(0) for _ in range(others)]
    answers, pids = [], []
    for fd in fds:

        def child(sock: socket.socket, fd: int = fd) -> None:
            while os.eventfd_read(fd) == 1:
                assert len(memory[:BARE_BYTES]) == BARE_BYTES
                sock.send(ANSWER)

        answer, pid = in_child(child)
        answers.append(answer)
        pids.append(pid)

    def say() -> None:
        memory[:BARE_BYTES] = data
        for fd in fds:
            os.eventfd_write(fd, 1)

    found, _ = timed(say, lambda: hear_all(answers))
    for fd, pid, answer in zip(fds, pids, answers, strict=True):
        os.eventfd_write(fd, 2)
        os.waitpid(pid, 0)
        os.close(fd)
        answer.close()
    return found


def main() -> None:
    """Print everything as one JSON object."""
    bare, answered = socket_times()
    found: dict[str, object] = {**summary("socket", bare), **summary("socket_answer", answered)}
    for num_ranks in NUM_RANKS:
        others = num_ranks - 1
        said, heard = feed_times(others, step)
        with_input, _ = feed_times(others, step_with_input)
        told = summary("step", said)
        found[f"{num_ranks} ranks"] = {
            **told,
            **summary("heard", heard),
            **summary("eventfd", eventfd_times(others)),
            **summary("input", with_input),
            "step_over_sockets": round(
                told["step_us"] / others / summary("socket", bare)["socket_us"], 2
            ),
        }
    print(json.dumps({"rank_broadcast": found}))


if __name__ == "__main__":
    main()
