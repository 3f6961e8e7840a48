"""An ordered stream of messages over a socket, on an asyncio loop.

Every method is called on the loop's thread and none waits. The end of the stream is the failure
signal: when the other end is gone, or says what it must not say, `on_eof` is called once, unless
the stream was closed before. Nothing is read after that; closing remains with the owner, who may
send a last word first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from stagemesh.runtime import messages
from stagemesh.runtime.frames import Frame, FrameReader
from stagemesh.runtime.messages import NOTHING, Attached, Message, ProtocolError
from stagemesh.runtime.pipes import pipe_of

_GONE: Final = (
    errno.ECONNABORTED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EPIPE,
    errno.ETIMEDOUT,
)
"""What writing finds when the other end, or the way to it, is gone."""

_MOST_HELD: Final = 16
"""Frames that are held back at most: whoever reads them can begin."""

OnMessage = Callable[[Message, Attached], None]
"""Takes a message and owns what came with it; raises `ProtocolError` for what does not belong."""
OnEof = Callable[[str | None], None]
"""Hears what the other end did that it must not do, or `None` when it has just gone."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Outgoing:
    """Frames that are not sent whole; their memory is kept until they are.

    Descriptors belong to the first of them.
    """

    parts: deque[memoryview]
    fds: tuple[int, ...]
    then: tuple[Callable[[], None], ...] = ()
    """Whoever waits for that."""

    def sent(self, count: int) -> None:
        """Forget what is gone."""
        _close_all(self.fds)
        self.fds = ()
        while self.parts and count >= len(self.parts[0]):
            count -= len(self.parts.popleft())
        if count:
            self.parts[0] = self.parts[0][count:]


class Stream:
    """One end of a stream."""

    def __init__(
        self,
        sock: socket.socket,
        on_message: OnMessage,
        on_eof: OnEof,
        *,
        bulk_limit: int = 0,
    ) -> None:
        """Take over `sock` and read from it on the running loop from now on.

        Behind one message `bulk_limit` bytes may come; more of them end the stream.
        """
        self._sock = sock
        self._pipe = pipe_of(sock)
        self.is_near: Final = sock.family == socket.AF_UNIX
        """Whether the other end is on this host, so that both have the same clock."""
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_eof = on_eof
        self._reader = FrameReader(bulk_limit)
        self._incoming_fds: deque[int] = deque()
        self._outgoing: deque[_Outgoing] = deque()
        self._waits_to_write = False
        self._is_held = False
        self._to_say: list[Callable[[], None]] = []
        self._reads = True
        self._writes = True
        self._closed = False
        self._loop.add_reader(sock, self._readable)

    def send(
        self, message: Message, fds: tuple[int, ...] = (), bulk: Sequence[memoryview] = ()
    ) -> None:
        """Send, now or as soon as there is room.

        Closes `fds` once sent, or when nobody reads; `bulk` must stay as it is until sent. Raises
        `ProtocolError` for descriptors that cannot travel, which are closed.
        """
        if fds and not (self._writes and self._pipe.carries_fds):
            _close_all(fds)
            if self._writes:
                raise ProtocolError("descriptors do not travel between hosts")
        if not self._writes:
            return
        parts = [view.cast("B") for view in bulk if view.nbytes]
        frame = messages.encode(message, len(fds), sum(map(len, parts)))
        self._queue(_Outgoing(parts=deque([memoryview(frame), *parts]), fds=fds))

    def send_frame(self, frame: bytes) -> None:
        """Send a message that has been encoded before."""
        if self._writes:
            self._queue(_Outgoing(parts=deque([memoryview(frame)]), fds=()))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Send together, at the end or when it has become much, what is sent meanwhile."""
        before, self._is_held = self._is_held, True
        try:
            yield
        finally:
            self._is_held = before
            if not before:
                self._say()
                if not self._waits_to_write:
                    self._writable()

    def soon(self, say: Callable[[], None]) -> None:
        """Have `say` send something before anything else is sent; at once where nothing is held."""
        if self._is_held:
            self._to_say.append(say)
        else:
            say()

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` once all that was sent so far has left this process, or nobody reads it."""
        if self._outgoing:
            self._outgoing[-1].then += (then,)
        else:
            then()

    def recycle(self, bulk: Sequence[memoryview]) -> None:
        """Take back the memory of bulk that came here, which nobody reads any more."""
        self._reader.recycle(bulk)

    def read_rest(self) -> None:
        """Take in what the other end, now gone, had still said."""
        while self._reads and self._readable():
            pass

    def close(self) -> None:
        """Close; from now on `on_eof` is not called, and what was not sent is dropped."""
        if self._closed:
            return
        if self._is_held and not self._waits_to_write:
            self._say()
            self._writable()
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
        outgoing, self._outgoing = self._outgoing, deque()
        for frame in outgoing:
            _close_all(frame.fds)
            for then in frame.then:
                then()

    def _say(self) -> None:
        while self._to_say:
            self._to_say.pop(0)()

    def _queue(self, frame: _Outgoing) -> None:
        self._say()
        last = self._outgoing[-1] if self._outgoing else None
        if last is None or frame.fds or last.then:
            self._outgoing.append(frame)
        else:
            last.parts += frame.parts
        if self._is_held:
            is_due = len(self._outgoing[0].parts) >= _MOST_HELD and not self._waits_to_write
        else:
            is_due = last is None  # what is there waits for room
        if is_due:
            self._writable()

    def _writable(self) -> None:
        while self._outgoing:
            frame = self._outgoing[0]
            try:
                sent = self._pipe.send(frame.parts, frame.fds)
            except (BlockingIOError, InterruptedError):
                self._await_room()
                return
            except OSError as error:
                self._stop_writing()  # the reader takes in what was still said, then finds the end
                if error.errno not in _GONE:
                    self._lost(f"the stream cannot be written to: {error}")
                return
            frame.sent(sent)
            if not frame.parts:
                self._outgoing.popleft()
                for then in frame.then:
                    then()
        if self._waits_to_write:
            self._waits_to_write = False
            self._loop.remove_writer(self._sock)

    def _await_room(self) -> None:
        """Go on once there is room, or once the other end has answered when that is missing."""
        if not self._waits_to_write and not self._pipe.must_hear:
            self._waits_to_write = True
            self._loop.add_writer(self._sock, self._writable)

    def _readable(self) -> bool:
        """Take in what has come; whether there was anything."""
        had_some = self._receive()
        while self._reads and self._pipe.has_more:
            self._receive()
        if self._outgoing and not self._waits_to_write:
            self._writable()
        return had_some

    def _receive(self) -> bool:
        try:
            count, fds = self._pipe.receive(self._reader.room)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._lost()
            return False
        except ProtocolError as error:
            self._lost(str(error))
            return False
        self._incoming_fds.extend(fds)
        if not count:
            self._lost()
            return False
        try:
            with self.held():  # most messages are answered, and several have come at once
                for frame in self._reader.received(count):
                    has_more = frame.num_fds or frame.bulk
                    attached = self._attached(frame) if has_more else NOTHING
                    self._on_message(frame.message, attached)
                    if not self._reads:
                        break
                else:
                    self._check_fds()
        except ProtocolError as error:
            self._lost(str(error))
        return True

    def _check_fds(self) -> None:
        """Every descriptor comes with the first bytes of the frame that announces it."""
        num_fds = len(self._incoming_fds)
        if num_fds > (messages.MAX_FDS if self._reader.is_inside else 0):
            raise ProtocolError("descriptors came that no message announces")

    def _attached(self, frame: Frame) -> Attached:
        if frame.num_fds > len(self._incoming_fds):
            raise ProtocolError("message came with descriptors that it does not have")
        fds = tuple(self._incoming_fds.popleft() for _ in range(frame.num_fds))
        return Attached(fds=fds, bulk=frame.bulk)


def _close_all(fds: tuple[int, ...] | deque[int]) -> None:
    for fd in fds:
        os.close(fd)
