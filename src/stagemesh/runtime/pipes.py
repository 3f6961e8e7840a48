"""The bytes of one socket, whatever kind it is: Unix with descriptors, TCP, or TCP under TLS.

No method waits: `BlockingIOError` says that there is nothing to read or no room to write, and any
other `OSError` that nothing will come of it any more. A host that is gone without a word is found
out in seconds, because the kernel asks for it.
"""

from __future__ import annotations

import array
import errno
import socket
import ssl
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from stagemesh.runtime.messages import MAX_FDS, ProtocolError

EXHAUSTED: Final = "there are no descriptors left to take what was sent"
"""What `ProtocolError` says when it is not the other end that is to blame."""
GONE_S: Final = 5
"""Seconds after which a host that does not answer counts as gone."""
_ASK_AFTER_S: Final = 2
_MAX_PARTS: Final = 512
"""Most pieces of memory that are handed to the system at once."""
_RECORD_BYTES: Final = 16 * 1024
"""Bytes of one TLS record; one write is one record, because it must be repeated as it was."""
_FD_BYTES: Final = array.array("i").itemsize
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(MAX_FDS * _FD_BYTES)


class Pipe(Protocol):
    """What a stream needs of a socket, which is not blocking and stays the stream's to close."""

    carries_fds: bool
    """Whether descriptors can travel."""

    @property
    def has_more(self) -> bool:
        """Whether there is something to receive that the system does not tell of."""
        ...

    @property
    def must_hear(self) -> bool:
        """Whether sending waits for the other end's word rather than for room."""
        ...

    def receive(self, room: memoryview) -> tuple[int, Sequence[int]]:
        """Receive into `room`; return how many bytes, `0` at the end, and descriptors."""
        ...

    def send(self, parts: Iterable[memoryview], fds: tuple[int, ...]) -> int:
        """Send as much of `parts` as there is room for, which are not empty."""
        ...


def pipe_of(sock: socket.socket) -> Pipe:
    """Return the pipe for a connected socket."""
    sock.setblocking(False)  # noqa: FBT003  signature of the standard library
    if isinstance(sock, ssl.SSLSocket):
        return TlsPipe(sock)
    return UnixPipe(sock) if sock.family == socket.AF_UNIX else TcpPipe(sock)


def tune(sock: socket.socket) -> None:
    """Make a TCP socket send at once, and notice in `GONE_S` that the other host is gone."""
    options = (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_USER_TIMEOUT, GONE_S * 1000),
        (socket.TCP_KEEPIDLE, _ASK_AFTER_S),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, GONE_S - _ASK_AFTER_S),
    )
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in options:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


class UnixPipe:
    """A Unix socket; descriptors travel with the first bytes of what is sent."""

    carries_fds = True
    has_more = False
    must_hear = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self, room: memoryview) -> tuple[int, Sequence[int]]:
        """Receive bytes and descriptors; raises `ProtocolError` when those find no room."""
        count, ancillary, flags, _ = self._sock.recvmsg_into(
            [room], _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
        fds = array.array("i")
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(raw[: len(raw) - len(raw) % _FD_BYTES])
        if flags & socket.MSG_CTRUNC:
            for fd in fds:
                socket.close(fd)
            raise ProtocolError(EXHAUSTED)
        return count, fds

    def send(self, parts: Iterable[memoryview], fds: tuple[int, ...]) -> int:
        """Send bytes and descriptors."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        return self._sock.sendmsg(islice(parts, _MAX_PARTS), rights)


class TcpPipe:
    """A TCP socket."""

    carries_fds = False
    has_more = False
    must_hear = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        tune(sock)

    def receive(self, room: memoryview) -> tuple[int, Sequence[int]]:
        """Receive bytes."""
        return self._sock.recv_into(room), ()

    def send(self, parts: Iterable[memoryview], fds: tuple[int, ...]) -> int:
        """Send bytes."""
        assert not fds
        return self._sock.sendmsg(islice(parts, _MAX_PARTS))


class TlsPipe:
    """A TCP socket under TLS, whose handshake goes along with the first bytes."""

    carries_fds = False

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._flaw: ssl.SSLError | None = None
        self.must_hear = False
        tune(sock)
        try:
            sock.do_handshake()  # it goes on with the first bytes
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except ssl.SSLError as error:
            self._flaw = error
        except OSError:
            return  # the reader finds the end

    @property
    def has_more(self) -> bool:
        """Whether a record has been received of which a part is left."""
        return self._sock.pending() > 0

    def receive(self, room: memoryview) -> tuple[int, Sequence[int]]:
        """Receive bytes; raises `ProtocolError` when the other end is not who it must be."""
        try:
            if self._flaw is not None:
                raise self._flaw
            return self._sock.recv_into(room), ()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error
        except ssl.SSLEOFError:
            return 0, ()
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS failed: {error.reason or error}") from error

    def send(self, parts: Iterable[memoryview], fds: tuple[int, ...]) -> int:
        """Send one record at most."""
        assert not fds
        self.must_hear = False
        try:
            return self._sock.send(next(iter(parts))[:_RECORD_BYTES])
        except ssl.SSLWantReadError as error:
            self.must_hear = True
            raise BlockingIOError from error
        except ssl.SSLWantWriteError as error:
            raise BlockingIOError from error
        except ssl.SSLError as error:
            self._flaw = error  # which the reader tells
            raise BrokenPipeError(errno.EPIPE, "TLS failed") from error
