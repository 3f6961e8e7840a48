"""Groups of ranks on one host, over memory that all of them map.

Every ordered pair of members has a ring of bytes with two counters: what has been written, and what
has been read. Who waits looks at the counters for at most 50 us, and only where every rank of the
group has a core; then it says that it sleeps, looks once more, and blocks on its eventfd. Whoever
moves a counter wakes the other end if that sleeps. A socket between each two members carries
nothing: it closes when one of them dies or closes, which ends the waits of the other.
"""

from __future__ import annotations

import mmap
import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import torch

from stagemesh.errors import PeerError
from stagemesh.parallel.mesh.handshake import Shared, share
from stagemesh.parallel.mesh.ranks import Group, GroupRank
from stagemesh.parallel.mesh.stores import Store

RING_BYTES: Final = 256 * 1024
"""Room of each ordered pair."""
DIRECT_BYTES: Final = 32 * 1024
"""Sums up to this size go whole to every member: one exchange instead of two."""
SPIN_S: Final = 50e-6
"""How long a wait looks before it blocks."""
_LINE: Final = 64
"""Bytes of a cache line: counters of different writers stand on different ones."""
_WORDS: Final = _LINE // 8

_Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]


def connect(group: Group, store: Store, within_s: float) -> HostMemoryLink:
    """Connect a group; `within_s` is also the deadline of every later wait."""
    pairs = group.size * group.size
    header = _LINE * (group.size + 2 * pairs)
    shared = share(group, store, within_s, header + pairs * RING_BYTES)
    return HostMemoryLink(group, shared, header, within_s)


def spin_s(ranks: int) -> float:
    """Return how long waits look before they block: not at all where ranks share cores."""
    free = len(os.sched_getaffinity(0)) - int(os.getloadavg()[0])
    return SPIN_S if ranks <= free else 0.0


class _Ring:
    """One direction between two members."""

    def __init__(self, words: memoryview, at: int, data: _Bytes) -> None:
        self._words = words
        self._written = at
        self._read = at + _WORDS
        self._data = data

    def put(self, source: _Bytes, done: int) -> int:
        """Write as much of `source` from `done` on as there is room for, and return how much."""
        written = self._words[self._written]
        count = min(len(source) - done, RING_BYTES - (written - self._words[self._read]))
        if count:
            for start, at, length in _pieces(written, count):
                self._data[start : start + length] = source[done + at : done + at + length]
            self._words[self._written] = written + count
        return count

    def take(self, target: _Bytes, done: int) -> int:
        """Read as much as there is, no more than `target` lacks, and return how much."""
        read = self._words[self._read]
        count = min(len(target) - done, self._words[self._written] - read)
        if count:
            for start, at, length in _pieces(read, count):
                target[done + at : done + at + length] = self._data[start : start + length]
            self._words[self._read] = read + count
        return count


def _pieces(counter: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Where in the ring, and where in the bytes, one or two pieces begin; and their lengths."""
    start = counter % RING_BYTES
    first = min(count, RING_BYTES - start)
    yield start, 0, first
    if first < count:
        yield 0, first, count - first


class _Transfer:
    """One all-to-all under way."""

    def __init__(
        self, link: HostMemoryLink, sends: Sequence[torch.Tensor], receives: Sequence[torch.Tensor]
    ) -> None:
        self._link = link
        self._out = {n: each.numpy() for n, each in enumerate(sends) if len(each)}
        self._into = {n: each.numpy() for n, each in enumerate(receives) if len(each)}
        self._sent = dict.fromkeys(self._out, 0)
        self._got = dict.fromkeys(self._into, 0)

    def step(self) -> bool:
        """Move what can be moved, and return whether that was anything."""
        moved: set[int] = set()
        for place, data in list(self._out.items()):
            count = self._link.outward[place].put(data, self._sent[place])
            if count:
                moved.add(place)
                self._sent[place] += count
                if self._sent[place] == len(data):
                    del self._out[place]
        for place, data in list(self._into.items()):
            count = self._link.inward[place].take(data, self._got[place])
            if count:
                moved.add(place)
                self._got[place] += count
                if self._got[place] == len(data):
                    del self._into[place]
        self._link.wake(moved)
        return bool(moved)

    @property
    def missing(self) -> set[int]:
        """Places that still have something to take or to give."""
        return {*self._out, *self._into}

    def wait(self) -> None:
        """Move everything; a link that fails is closed, for half of it lies in the rings."""
        link = self._link
        deadline = time.monotonic() + link.within_s
        look_until = 0.0
        try:
            while self.missing:
                if self.step():
                    look_until = time.monotonic() + link.spin_s
                elif time.monotonic() > look_until:
                    link.sleep(self, deadline)
                    look_until = time.monotonic() + link.spin_s
        finally:
            if self.missing:
                link.close()


class HostMemoryLink:
    """One group of ranks on this host."""

    def __init__(self, group: Group, shared: Shared, header: int, within_s: float) -> None:
        """Take over what the members share; `header` bytes of it are flags and counters."""
        self.within_s: Final = within_s
        self.spin_s: Final = spin_s(group.size)
        self._group = group
        self._shared: Shared | None = shared
        self._memory = mmap.mmap(shared.memory, 0)
        self._words = memoryview(self._memory)[:header].cast("Q")
        rings = np.frombuffer(self._memory, np.uint8, offset=header)
        self.outward = [self._ring(rings, group.own, place) for place in range(group.size)]
        self.inward = [self._ring(rings, place, group.own) for place in range(group.size)]
        self._fence = threading.Lock()
        self._gone: set[int] = set()
        self._poll = select.poll()
        self._poll.register(shared.wakes[group.own], select.POLLIN)
        for each in shared.peers.values():
            self._poll.register(each, select.POLLIN)

    def _ring(self, rings: _Bytes, source: int, target: int) -> _Ring:
        size = self._group.size
        pair = source * size + target
        data = rings[pair * RING_BYTES : (pair + 1) * RING_BYTES]
        return _Ring(self._words, _WORDS * (size + 2 * pair), data)

    def all_to_all(
        self, sends: Sequence[torch.Tensor], receives: Sequence[torch.Tensor]
    ) -> _Transfer:
        """Begin to move pieces: what there is room for is on its way when this returns."""
        self._open()
        transfer = _Transfer(self, sends, receives)
        transfer.step()
        return transfer

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum in place, in the order of places, so that all have the same bits."""
        flat = tensor.view(-1)
        size, own = self._group.size, self._group.own
        if flat.nbytes <= DIRECT_BYTES:
            self._sum(flat, [flat] * size)
            return
        base, longer = divmod(len(flat), size)
        parts = list(flat.split([base + (place < longer) for place in range(size)]))
        self._sum(parts[own], parts)
        out = [_bytes(parts[own])] * size
        self._move(out, [_bytes(each) for each in parts])

    def _sum(self, total: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """Send each member its part, and put the sum of what comes into `total`."""
        own = self._group.own
        received = [
            total.clone() if n == own else torch.empty_like(total) for n in range(len(parts))
        ]
        self._move([_bytes(each) for each in parts], [_bytes(each) for each in received])
        total.copy_(received[0])
        for each in received[1:]:
            total += each

    def _move(self, sends: list[torch.Tensor], receives: list[torch.Tensor]) -> None:
        own = self._group.own
        blank = sends[own].new_empty(0)
        sends[own] = receives[own] = blank
        self.all_to_all(sends, receives).wait()

    def wake(self, places: set[int]) -> None:
        """Wake those of the members that sleep."""
        if not places:
            return
        self._full_fence()
        for place in places:
            if self._words[place * _WORDS]:
                os.eventfd_write(self._open().wakes[place], 1)

    def sleep(self, transfer: _Transfer, deadline: float) -> None:
        """Block until somebody moves something, dies, or the deadline is over."""
        shared, flag = self._open(), self._group.own * _WORDS
        self._words[flag] = 1
        self._full_fence()
        if transfer.step():
            self._words[flag] = 0
            return
        self._refuse_gone(transfer)
        ready = [fd for fd, _ in self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]
        self._words[flag] = 0
        if shared.wakes[self._group.own] in ready:
            os.eventfd_read(shared.wakes[self._group.own])
        for place, each in shared.peers.items():
            if each.fileno() in ready:
                self._gone.add(place)
                self._poll.unregister(each)
        if transfer.step():
            return
        self._refuse_gone(transfer)
        if not ready:
            late = ", ".join(self._name(place) for place in sorted(transfer.missing))
            raise PeerError(f"{late} did not answer within {self.within_s:g} s")

    def _refuse_gone(self, transfer: _Transfer) -> None:
        for place in sorted(self._gone & transfer.missing):
            raise PeerError(f"{self._name(place)} is gone")

    def _name(self, place: int) -> str:
        return f"rank `{self._group.member(GroupRank(place))}` of `{self._group.axis}`"

    def _full_fence(self) -> None:
        """Order the store before it before the loads after it: a locked instruction does on x86."""
        self._fence.acquire()
        self._fence.release()

    def _open(self) -> Shared:
        if self._shared is None:
            raise PeerError(f"the mesh has been closed: nothing goes over `{self._group.axis}`")
        return self._shared

    def close(self) -> None:
        """Close the sockets, which tells the others, and let go of the memory."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)
