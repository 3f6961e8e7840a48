"""Frames out of bytes: what has been received becomes messages, whatever pieces it comes in.

Messages are read where they were received; only the beginning of one that is not whole is moved,
to the front of that memory. The bulk behind a message goes where it is to stay, into aligned memory
of its own, which is taken only once the message before it allows it, and may be given back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from stagemesh.connectors._memory import Spare
from stagemesh.runtime import messages
from stagemesh.runtime.messages import (
    FRAME_HEAD,
    Chunk,
    Feed,
    Meeting,
    Message,
    PeerUp,
    ProtocolError,
)

_HEAD_BYTES: Final = FRAME_HEAD.size
_READ_BYTES: Final = 64 * 1024
_SPARE_BYTES: Final = 64 * 1024 * 1024
"""Most memory of one stream that is kept for bulk to come, beside the one that was used last."""


class Frame(Struct, frozen=True, kw_only=True):
    """One message as it came; a struct because there are many."""

    message: Message
    """The message."""
    num_fds: int
    """Descriptors that came with it."""
    bulk: tuple[memoryview, ...] = ()
    """The bytes behind it, in one piece, or none."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Bulk:
    """The bytes behind a message, as far as they have come."""

    message: Message
    num_fds: int
    whole: memoryview
    num_taken: int = 0

    def took(self, count: int) -> None:
        self.num_taken += count

    def fill(self, read: memoryview) -> int:
        """Take what has been read too far already; return how much of it that is."""
        count = min(len(read), len(self.whole))
        self.whole[:count] = read[:count]
        self.num_taken = count
        return count

    @property
    def room(self) -> memoryview:
        return self.whole[self.num_taken :]

    @property
    def frame(self) -> Frame:
        return Frame(message=self.message, num_fds=self.num_fds, bulk=(self.whole,))


class FrameReader:
    """Finds the frames of one stream, and takes no more memory than its limits say."""

    def __init__(self, bulk_limit: int = 0) -> None:
        """Behind one message come `bulk_limit` bytes at most; `0` allows none at all."""
        self._bulk_limit = bulk_limit
        self._spare = Spare(_SPARE_BYTES)
        self._memory = memoryview(bytearray(_READ_BYTES))
        self._num_read = 0
        """Bytes at the front of it that have come and are no whole frame yet."""
        self._bulk: _Bulk | None = None

    @property
    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._memory[self._num_read :] if self._bulk is None else self._bulk.room

    @property
    def is_inside(self) -> bool:
        """Whether a frame has begun that is not whole yet."""
        return self._num_read > 0 or self._bulk is not None

    def received(self, count: int) -> Iterator[Frame]:
        """Take in `count` bytes that were put into `room`; give every frame that is whole now.

        Raises `ProtocolError` for what is no frame, after which there is nothing more to be read.
        """
        if self._bulk is None:
            self._num_read += count
            return self._frames()
        self._bulk.took(count)
        if self._bulk.room:
            return iter(())
        whole, self._bulk = self._bulk, None
        return iter((whole.frame,))

    def _frames(self) -> Iterator[Frame]:
        memory, begin, end = self._memory, 0, self._num_read
        try:
            while end - begin >= _HEAD_BYTES:
                length, num_fds, bulk_bytes = FRAME_HEAD.unpack_from(memory, begin)
                if length > _READ_BYTES or num_fds or bulk_bytes:
                    self._check(length, num_fds, bulk_bytes)
                behind = begin + _HEAD_BYTES + length
                if end < behind:
                    return
                message = messages.decode(memory[begin + _HEAD_BYTES : behind])
                begin = behind
                if num_fds or bulk_bytes:
                    _check_kind(message, num_fds, bulk_bytes)
                if not bulk_bytes:
                    yield Frame(message=message, num_fds=num_fds)
                    continue
                bulk = _Bulk(message=message, num_fds=num_fds, whole=self._memory_for(bulk_bytes))
                begin += bulk.fill(memory[begin:end])
                if bulk.room:
                    self._bulk = bulk
                    return
                yield bulk.frame
        finally:
            self._keep(begin)

    def _keep(self, begin: int) -> None:
        """Move what is left to the front of the memory, of which there is more when it is full."""
        left = self._memory[begin : self._num_read]
        self._num_read = len(left)
        if len(left) == len(self._memory):
            self._memory = memoryview(bytearray(2 * len(left)))
        elif not left and len(self._memory) > _READ_BYTES:
            self._memory = memoryview(bytearray(_READ_BYTES))
        self._memory[: len(left)] = left

    def recycle(self, bulk: Sequence[memoryview]) -> None:
        """Use the memory of a frame's bulk again: nobody reads it any more."""
        for piece in bulk:
            self._spare.give(piece)

    def _memory_for(self, num_bytes: int) -> memoryview:
        """Memory from the start of a page, taken only as it is filled."""
        try:
            return self._spare.take(num_bytes)[:num_bytes]
        except (OSError, OverflowError, ValueError) as error:
            raise ProtocolError(
                f"there is no memory for `{num_bytes}` bytes behind a message: {error}"
            ) from error

    def _check(self, length: int, num_fds: int, bulk_bytes: int) -> None:
        if length > messages.MAX_FRAME_BYTES or num_fds > messages.MAX_FDS:
            raise ProtocolError(f"frame of `{length}` bytes, `{num_fds}` descriptors is too long")
        if bulk_bytes > self._bulk_limit:
            raise ProtocolError(
                f"`{bulk_bytes}` bytes behind a message are too many (at most `{self._bulk_limit}`)"
            )


def _check_kind(message: Message, num_fds: int, bulk_bytes: int) -> None:
    if num_fds and not isinstance(message, Chunk | PeerUp | Meeting | Feed):
        raise ProtocolError("message came with descriptors that it does not have")
    if bulk_bytes and not isinstance(message, Chunk):
        raise ProtocolError("message came with bytes behind it that it does not have")
