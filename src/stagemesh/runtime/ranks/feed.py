"""How commands get from rank 0 to the other ranks: one small write to each for a whole step.

What one step needs is one message: a head, the bytes of all buffers, and the encoded commands. On
one host it goes over a socket that keeps the bounds of messages, so that it is taken in by one
call. When it is too long it goes into a memory file, once for all ranks, and only the head and the
descriptor are sent. To another host it goes over TCP, whole, behind its length. Nobody answers:
memory goes with the last view of it, and a rank that is behind is waited for when its socket is
full.
"""

from __future__ import annotations

import array
import mmap
import os
import socket
from collections.abc import Sequence
from struct import Struct as Layout
from time import monotonic
from typing import Final

from stagemesh.runtime.ranks.commands import Command, Head, decode, encode
from stagemesh.spec.payload import ALIGNMENT, Buffer

INLINE_BYTES: Final = 32 * 1024
"""Longest message that is sent as it is."""
_HEAD: Final = Layout("<QQ")
"""Where the commands are, and how long they are."""
_COUNT: Final = Layout("<Q")
"""How long a message is, where that is not to be seen."""
_ROOM_BYTES: Final = INLINE_BYTES + ALIGNMENT
_READY: Final = b"\x01"
_FD_BYTES: Final = array.array("i").itemsize


def feed_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a feed on one host; either may be handed to another process."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class _Page:
    """The message that is being written: in memory, or in a file once that is too long."""

    def __init__(self) -> None:
        self._data = bytearray(ALIGNMENT)
        self._fd: int | None = None
        self._end = ALIGNMENT

    def write(self, data: memoryview | bytes) -> int:
        """Add bytes where they are aligned; return where they begin."""
        start = -(-self._end // ALIGNMENT) * ALIGNMENT
        self._end = start + len(data)
        if self._fd is None and self._end > INLINE_BYTES:
            self._fd = os.memfd_create("stagemesh-feed", os.MFD_CLOEXEC)
            _write_at(self._fd, memoryview(self._data), 0)
        if self._fd is None:
            self._data += bytes(start - len(self._data))
            self._data += data
        else:
            _write_at(self._fd, memoryview(data), start)
        return start

    def send(self, at: int, length: int, socks: Sequence[socket.socket]) -> None:
        """Send it to everybody; raises `OSError` when one of them is gone."""
        head = _HEAD.pack(at, length)
        if self._fd is None:
            self._data[: len(head)] = head
        else:
            _write_at(self._fd, memoryview(head), 0)
        for sock in socks:
            if not _is_near(sock):
                self._send_whole(sock)
            elif self._fd is None:
                sock.send(self._data)
            else:
                socket.send_fds(sock, [head], [self._fd])

    def _send_whole(self, sock: socket.socket) -> None:
        count = _COUNT.pack(self._end)
        if self._fd is None:
            sock.sendall(count + self._data)
        else:
            sock.sendall(count)
            with mmap.mmap(self._fd, self._end, prot=mmap.PROT_READ) as data:
                sock.sendall(data)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._fd is not None:
            os.close(self._fd)


def _write_at(fd: int, data: memoryview, start: int) -> None:
    while data:
        count = os.pwrite(fd, data, start)
        data, start = data[count:], start + count


class FeedWriter:
    """Rank 0's ends of all feeds."""

    def __init__(self, socks: Sequence[socket.socket]) -> None:
        """Take over the ends, the one of rank 1 first."""
        self._socks = tuple(map(_waiting, socks))
        self._page = _Page()
        self._commands: list[Command] = []

    def hold(self, buffers: Sequence[Buffer]) -> list[Head]:
        """Copy the bytes of buffers, so that their owner may have them back."""
        return [
            Head(
                name=each.name,
                dtype=each.dtype,
                shape=each.shape,
                start=self._page.write(each.data),
                num_bytes=len(each.data),
            )
            for each in buffers
        ]

    def add(self, command: Command) -> None:
        """Say something with the next `flush`."""
        self._commands.append(command)

    def flush(self) -> None:
        """Send what was said; raises `OSError` when a rank is gone."""
        if not self._commands:
            return
        page, self._page = self._page, _Page()
        commands, self._commands = self._commands, []
        try:
            body = encode(commands)
            page.send(page.write(body), len(body), self._socks)
        finally:
            page.close()

    def await_ready(self) -> None:
        """Wait until every rank has loaded; raises `OSError` when one is gone."""
        for sock in self._socks:
            if sock.recv(1) != _READY:
                raise ConnectionResetError

    def close(self) -> None:
        """Close all of them; ranks find the end of what was said."""
        self._page.close()
        for sock in self._socks:
            sock.close()


class FeedReader:
    """A further rank's end."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over `sock`."""
        self._sock = _waiting(sock)
        self._room = _fresh(_ROOM_BYTES)
        self._left_at: float | None = None

    @property
    def away_s(self) -> float:
        """For how long the engine's thread has been away from here, in its present step.

        `0` while it sleeps here, and before it comes for the first time: loading is no step.
        """
        left_at = self._left_at
        return 0.0 if left_at is None else monotonic() - left_at

    def ready(self) -> None:
        """Tell rank 0 that this one has loaded; raises `OSError` when it is gone."""
        self._sock.send(_READY)

    def take(self) -> tuple[list[Command], memoryview] | None:
        """Sleep until there are commands; return them, and where their buffers are.

        `None` says that rank 0 is gone. The memory stays as long as there are views of it.
        """
        self._left_at = None
        space = self._from_near() if _is_near(self._sock) else self._from_far()
        self._left_at = monotonic()
        if space is None:
            return None
        at, length = _HEAD.unpack_from(space)
        commands = decode(space[at : at + length])
        if at > ALIGNMENT and space.obj is self._room.obj:
            self._room = _fresh(_ROOM_BYTES)  # buffers are in the old one
        return commands, space

    def _from_near(self) -> memoryview | None:
        count, ancillary, flags, _ = self._sock.recvmsg_into(
            [self._room], socket.CMSG_SPACE(_FD_BYTES), socket.MSG_CMSG_CLOEXEC
        )
        if not count:
            return None
        if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
            raise OSError("there are no descriptors left to take what rank 0 says")
        return _mapped(ancillary[0][2]) if ancillary else self._room[:count].toreadonly()

    def _from_far(self) -> memoryview | None:
        head = memoryview(bytearray(_COUNT.size))
        if not self._fill(head):
            return None
        (count,) = _COUNT.unpack(head)
        room = (self._room if count <= len(self._room) else _fresh(count))[:count]
        return room.toreadonly() if self._fill(room) else None

    def _fill(self, room: memoryview) -> bool:
        """Sleep until there is so much; `False` says that rank 0, or the way to it, is gone."""
        while room:
            try:
                count = self._sock.recv_into(room)
            except OSError:
                return False
            if not count:
                return False
            room = room[count:]
        return True

    def close(self) -> None:
        """Close it."""
        self._sock.close()


def _fresh(num_bytes: int) -> memoryview:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return memoryview(mmap.mmap(-1, num_bytes, flags=flags))


def _is_near(sock: socket.socket) -> bool:
    """Whether the other end is on this host."""
    return sock.family == socket.AF_UNIX


def _waiting(sock: socket.socket) -> socket.socket:
    """A socket that was dialed on a loop does not wait, until it is told to."""
    sock.setblocking(True)  # noqa: FBT003  signature of the standard library
    return sock


def _mapped(raw: bytes) -> memoryview:
    (fd,) = array.array("i", raw)
    try:
        return memoryview(mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))
    finally:
        os.close(fd)
