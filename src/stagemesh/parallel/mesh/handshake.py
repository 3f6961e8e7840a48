"""How ranks of one host come to share memory, wake-ups and sockets: one of them hands them out.

The member at place 0 listens on an abstract socket whose name it says in the store. It makes all
that is shared and sends it as descriptors, so that nothing has a name that could be left behind.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from stagemesh.errors import MeshError
from stagemesh.parallel.mesh.ranks import Group
from stagemesh.parallel.mesh.stores import Store
from stagemesh.spec.frozen import frozen

_ADDRESS: Final = "address"
_PLACE: Final = struct.Struct("I")
_CREDENTIALS: Final = struct.Struct("3i")


@frozen
class Shared:
    """What one member holds of what a group shares."""

    memory: int
    """Descriptor of the memory, which begins as zeros."""
    wakes: tuple[int, ...]
    """Eventfds that wake the members, by place."""
    peers: dict[int, socket.socket]
    """A socket to each other member, by place."""

    def close(self) -> None:
        """Close all of it."""
        for each in self.peers.values():
            each.close()
        for fd in (self.memory, *self.wakes):
            os.close(fd)


def share(group: Group, store: Store, within_s: float, num_bytes: int) -> Shared:
    """Make what a group shares, or take it from the member that makes it."""
    deadline = time.monotonic() + within_s
    if group.own == 0:
        return _hand_out(group, store, deadline, num_bytes)
    store.wait([_ADDRESS], timedelta(seconds=within_s))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(_left(deadline))
        sock.connect(b"\0" + store.get(_ADDRESS))
        sock.send(_PLACE.pack(group.own))
        size = group.size
        _, fds, _, _ = socket.recv_fds(sock, 1, 2 * size, socket.MSG_CMSG_CLOEXEC)
        if len(fds) != 2 * size:
            raise MeshError("the rank that makes the shared memory is gone")
    memory, *rest = fds
    others = [place for place in range(size) if place != group.own]
    peers = {n: socket.socket(fileno=fd) for n, fd in zip(others, rest[size:], strict=True)}
    return Shared(memory=memory, wakes=tuple(rest[:size]), peers=peers)


def _hand_out(group: Group, store: Store, deadline: float, num_bytes: int) -> Shared:
    name = f"stagemesh-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(group.size)
        store.set(_ADDRESS, name)
        joined: dict[int, socket.socket] = {}
        try:
            while len(joined) < group.size - 1:
                listener.settimeout(_left(deadline))
                sock, _ = listener.accept()
                place = _place_of(sock, deadline)
                if place is None:
                    sock.close()
                else:
                    joined[place] = sock
            return _made(group.size, joined, num_bytes)
        finally:
            _close(joined.values())


def _place_of(sock: socket.socket, deadline: float) -> int | None:
    """The place of who has connected; `None` for other users and for who is gone again."""
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    sock.settimeout(_left(deadline))
    data = sock.recv(_PLACE.size)
    if _CREDENTIALS.unpack(told)[1] != os.getuid() or len(data) != _PLACE.size:
        return None
    return int(_PLACE.unpack(data)[0])


def _made(size: int, joined: dict[int, socket.socket], num_bytes: int) -> Shared:
    """Make everything, and send each member its part."""
    ends: dict[int, dict[int, socket.socket]] = {place: {} for place in range(size)}
    memory = os.memfd_create("stagemesh-mesh")
    os.ftruncate(memory, num_bytes)
    flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
    wakes = tuple(os.eventfd(0, flags) for _ in range(size))
    for low in range(size):
        for high in range(low + 1, size):
            ends[low][high], ends[high][low] = socket.socketpair()
    shared = Shared(memory=memory, wakes=wakes, peers=ends.pop(0))
    try:
        for place, sock in joined.items():
            theirs = [ends[place][other].fileno() for other in sorted(ends[place])]
            socket.send_fds(sock, [b"\0"], [memory, *wakes, *theirs])
    except OSError:
        shared.close()
        raise
    finally:
        for each in ends.values():
            _close(each.values())
    return shared


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise MeshError("not all ranks of the group came in time")
    return left


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()
