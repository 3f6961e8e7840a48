"""Frames out of bytes: what has been received becomes messages, whatever pieces it comes in.

Small messages gather in one buffer. The bulk behind a message goes where it is to stay, into
aligned memory of its own, which is taken only once the message before it allows it, and may be
given back.
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
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._incoming = bytearray()
        self._bulk: _Bulk | None = None

    @property
    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._scratch if self._bulk is None else self._bulk.room

    @property
    def is_inside(self) -> bool:
        """Whether a frame has begun that is not whole yet."""
        return bool(self._incoming) or self._bulk is not None

    def received(self, count: int) -> Iterator[Frame]:
        """Take in `count` bytes that were put into `room`; give every frame that is whole now.

        Raises `ProtocolError` for what is no frame, after which there is nothing more to be read.
        """
        if self._bulk is None:
            self._incoming += self._scratch[:count]
        else:
            self._bulk.took(count)
            if self._bulk.room:
                return
            whole, self._bulk = self._bulk, None
            yield whole.frame
        yield from self._frames()

    def _frames(self) -> Iterator[Frame]:
        begin = 0
        try:
            while len(self._incoming) - begin >= FRAME_HEAD.size:
                length, num_fds, bulk_bytes = FRAME_HEAD.unpack_from(self._incoming, begin)
                self._check(length, num_fds, bulk_bytes)
                end = begin + FRAME_HEAD.size + length
                if len(self._incoming) < end:
                    return
                message = messages.decode(self._incoming[begin + FRAME_HEAD.size : end])
                begin = end
                if num_fds or bulk_bytes:
                    _check_kind(message, num_fds, bulk_bytes)
                if not bulk_bytes:
                    yield Frame(message=message, num_fds=num_fds)
                    continue
                bulk = _Bulk(message=message, num_fds=num_fds, whole=self._memory(bulk_bytes))
                begin += self._move(bulk, begin)
                if bulk.room:
                    self._bulk = bulk
                    return
                yield bulk.frame
        finally:
            del self._incoming[:begin]

    def recycle(self, bulk: Sequence[memoryview]) -> None:
        """Use the memory of a frame's bulk again: nobody reads it any more."""
        for piece in bulk:
            self._spare.give(piece)

    def _memory(self, num_bytes: int) -> memoryview:
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

    def _move(self, bulk: _Bulk, begin: int) -> int:
        """Move what has been read too far already to where it belongs."""
        with memoryview(self._incoming) as incoming:
            count = min(len(incoming) - begin, len(bulk.whole))
            bulk.room[:count] = incoming[begin : begin + count]
        bulk.took(count)
        return count


def _check_kind(message: Message, num_fds: int, bulk_bytes: int) -> None:
    if num_fds and not isinstance(message, Chunk | PeerUp | Meeting | Feed):
        raise ProtocolError("message came with descriptors that it does not have")
    if bulk_bytes and not isinstance(message, Chunk):
        raise ProtocolError("message came with bytes behind it that it does not have")
