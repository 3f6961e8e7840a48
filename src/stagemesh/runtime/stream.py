"""An ordered stream of messages and descriptors over a Unix socket, on an asyncio loop.

Every method is called on the loop's thread and none waits. The end of the stream is the failure
signal: when the other end is gone, or says what it must not say, `on_eof` is called once, unless
the stream was closed before. Nothing is read after that; closing remains with the owner, who may
send a last word first.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from stagemesh.runtime import messages
from stagemesh.runtime.messages import FRAME_HEAD, Chunk, Message, PeerUp, ProtocolError

_READ_BYTES: Final = 64 * 1024
_FD_BYTES: Final = array.array("i").itemsize
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(messages.MAX_FDS * _FD_BYTES)

EXHAUSTED: Final = "there are no descriptors left to take what was sent"
"""A reason of `OnEof` for which the other end is not to blame."""

OnMessage = Callable[[Message, tuple[int, ...]], None]
"""Takes a message and owns the descriptors; raises `ProtocolError` for what does not belong."""
OnEof = Callable[[str | None], None]
"""Hears what the other end did that it must not do, or `None` when it has just gone."""


class Stream:
    """One end of a stream."""

    def __init__(self, sock: socket.socket, on_message: OnMessage, on_eof: OnEof) -> None:
        """Take over `sock` and read from it on the running loop from now on."""
        sock.setblocking(False)  # noqa: FBT003  signature of the standard library
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_eof = on_eof
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._incoming = bytearray()
        self._incoming_fds: deque[int] = deque()
        self._outgoing: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._waits_to_write = False
        self._reads = True
        self._writes = True
        self._closed = False
        self._loop.add_reader(sock, self._readable)

    def send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send, now or as soon as there is room; closes `fds` once sent, or when nobody reads."""
        if self._writes:
            self.send_frame(messages.encode(message, len(fds)), fds)
        else:
            _close_all(fds)

    def send_frame(self, frame: bytes, fds: tuple[int, ...] = ()) -> None:
        """Send a message that has been encoded before, with as many descriptors as it says."""
        if not self._writes:
            _close_all(fds)
            return
        self._outgoing.append((memoryview(frame), fds))
        if len(self._outgoing) == 1:
            self._writable()

    def read_rest(self) -> None:
        """Take in what the other end, now gone, had still said."""
        while self._reads and self._readable():
            pass

    def close(self) -> None:
        """Close; from now on `on_eof` is not called, and what was not sent is dropped."""
        if self._closed:
            return
        self._closed = True
        self._stop_reading()
        self._stop_writing()
        self._sock.close()
        _close_all(self._incoming_fds)

    def _lost(self, reason: str | None = None) -> None:
        if self._reads:
            self._stop_reading()
            self._loop.call_soon(self._tell_end, reason)  # never from inside a caller's `send`

    def _tell_end(self, reason: str | None) -> None:
        if not self._closed:
            self._on_eof(reason)

    def _stop_reading(self) -> None:
        self._reads = False
        self._loop.remove_reader(self._sock)

    def _stop_writing(self) -> None:
        self._writes = False
        self._loop.remove_writer(self._sock)
        for _, fds in self._outgoing:
            _close_all(fds)
        self._outgoing.clear()

    def _writable(self) -> None:
        while self._outgoing:
            frame, fds = self._outgoing[0]
            ancillary = (
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            )
            try:
                sent = self._sock.sendmsg([frame], ancillary)
            except (BlockingIOError, InterruptedError):
                if not self._waits_to_write:
                    self._waits_to_write = True
                    self._loop.add_writer(self._sock, self._writable)
                return
            except (BrokenPipeError, ConnectionResetError):
                self._stop_writing()  # the reader takes in what was still said, then finds the end
                return
            except OSError as error:
                self._stop_writing()
                self._lost(f"the stream cannot be written to: {error}")
                return
            _close_all(fds)
            if sent < len(frame):
                self._outgoing[0] = (frame[sent:], ())
            else:
                self._outgoing.popleft()
        if self._waits_to_write:
            self._waits_to_write = False
            self._loop.remove_writer(self._sock)

    def _readable(self) -> bool:
        """Take in what has come; whether there was anything."""
        try:
            count, ancillary, flags, _ = self._sock.recvmsg_into(
                [self._scratch], _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._lost()
            return False
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(raw[: len(raw) - len(raw) % _FD_BYTES])
                self._incoming_fds.extend(fds)
        if not count or flags & socket.MSG_CTRUNC:
            self._lost(EXHAUSTED if count else None)
            return False
        self._incoming += self._scratch[:count]
        try:
            self._parse()
        except ProtocolError as error:
            self._lost(str(error))
        return True

    def _parse(self) -> None:
        begin = 0
        try:
            while self._reads and len(self._incoming) - begin >= FRAME_HEAD.size:
                length, num_fds = FRAME_HEAD.unpack_from(self._incoming, begin)
                if length > messages.MAX_FRAME_BYTES or num_fds > messages.MAX_FDS:
                    raise ProtocolError(f"frame of `{length}` bytes is too long")
                end = begin + FRAME_HEAD.size + length
                if len(self._incoming) < end:
                    break
                body = bytes(memoryview(self._incoming)[begin + FRAME_HEAD.size : end])
                begin = end
                self._deliver(messages.decode(body), num_fds)
        finally:
            del self._incoming[:begin]

    def _deliver(self, message: Message, num_fds: int) -> None:
        if num_fds > len(self._incoming_fds) or (
            num_fds and not isinstance(message, Chunk | PeerUp)
        ):
            raise ProtocolError("message came with descriptors that it does not have")
        fds = tuple(self._incoming_fds.popleft() for _ in range(num_fds))
        self._on_message(message, fds)


def _close_all(fds: tuple[int, ...] | deque[int]) -> None:
    for fd in fds:
        os.close(fd)
