"""What connectors share beside the wire: aligned memory, what is in flight, what is lent."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from stagemesh.spec.payload import ALIGNMENT

_LEAST_BYTES: Final = 4096
"""What sizes are multiples of."""


def aligned(num_bytes: int) -> memoryview:
    """Return new memory that begins on a multiple of `ALIGNMENT`."""
    room = bytearray(num_bytes + ALIGNMENT)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % ALIGNMENT
    return memoryview(room)[start : start + num_bytes]


def aligned_copy(data: bytes | memoryview) -> memoryview:
    """Copy `data` to memory that begins on a multiple of `ALIGNMENT`."""
    memory = aligned(len(data))
    memory[:] = data
    return memory


def is_aligned(data: memoryview) -> bool:
    """Whether `data` begins on a multiple of `ALIGNMENT`, as far as it begins anywhere."""
    if not data.nbytes:
        return True
    return _address(data) % ALIGNMENT == 0


class _PyBuffer(ctypes.Structure):
    """`Py_buffer` of the stable ABI, as far as anybody looks at it."""

    _fields_: ClassVar = [("buf", ctypes.c_void_p), ("rest", ctypes.c_void_p * 9)]


def _address(data: memoryview) -> int:
    """Return where contiguous memory begins, read-only or not.

    What arrays have for this would cost every stage the import of numpy: a third of its start.
    """
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(data), ctypes.byref(buffer), 0)
    try:
        return buffer.buf or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


def size_class(num_bytes: int) -> int:
    """Round up to one of eight sizes per power of two, so that similar payloads share memory."""
    step = max(1 << max(num_bytes.bit_length() - 4, 0), _LEAST_BYTES)
    return -(-num_bytes // step) * step


class Spare:
    """Memory that was given back, for later payloads of about the size: touched memory is cheap.

    Fresh memory costs several times the copy into it, for the system hands out every page alone.
    """

    def __init__(self, num_bytes: int) -> None:
        """Keep about `num_bytes`, and the last piece whatever its size."""
        self._most = num_bytes
        self._pieces: deque[memoryview] = deque()
        self._total = 0

    def take(self, num_bytes: int) -> memoryview:
        """Give a piece of at least that size, from the start of a page, filled with anything.

        Raises `OSError`, `ValueError` or `OverflowError` when there is no such memory.
        """
        wanted = size_class(num_bytes)
        for piece in self._pieces:
            if piece.nbytes == wanted:
                self._pieces.remove(piece)
                self._total -= wanted
                return piece
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        return memoryview(mmap.mmap(-1, wanted, flags=flags))

    def give(self, view: memoryview) -> None:
        """Take a piece back, of which `view` shows some; the oldest go beyond the bound."""
        piece = memoryview(view.obj)
        self._pieces.append(piece)
        self._total += piece.nbytes
        while self._total > max(self._most, piece.nbytes):
            self._total -= self._pieces.popleft().nbytes

    def clear(self) -> None:
        """Keep nothing."""
        self._pieces.clear()
        self._total = 0


class Window:
    """Bytes of one edge that were sent and not released, and the numbers of their tickets.

    What is larger than the whole window goes alone, so that only a limit of its own keeps it out.
    """

    def __init__(self, num_bytes: int) -> None:
        """Let about `num_bytes` be in flight."""
        self._most = num_bytes
        self._in_flight: dict[int, int] = {}
        self._total = 0
        self._numbers = itertools.count()

    def has_room(self, num_bytes: int) -> bool:
        """Whether so much may go now."""
        return not self._in_flight or self._total + num_bytes <= self._most

    def take(self, num_bytes: int) -> int:
        """Count it as in flight; return the number of its ticket."""
        number = next(self._numbers)
        self._in_flight[number] = num_bytes
        self._total += num_bytes
        return number

    def release(self, number: int) -> bool:
        """Take it out; `False` when it is not in flight."""
        num_bytes = self._in_flight.pop(number, None)
        self._total -= num_bytes or 0
        return num_bytes is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in flight, so that no release will come."""
        return not self._in_flight

    def clear(self) -> tuple[int, ...]:
        """Take everything out; return the numbers."""
        numbers = tuple(self._in_flight)
        self._in_flight.clear()
        self._total = 0
        return numbers


@dataclass(eq=False, slots=True, kw_only=True)
class Loan:
    """Tells the producer once that a payload was given back, from whatever thread."""

    pending: list[int]
    on_release: Callable[[int], None]

    def release(self) -> None:
        """Give the payload back."""
        try:
            number = self.pending.pop()  # atomic: of two threads one gets it
        except IndexError:
            return
        self.on_release(number)
