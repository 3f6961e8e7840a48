"""Anonymous shared memory: page bookkeeping, a producer's writable mapping, sealed mappings of it.

Space is handed out by the producer alone, from a bitmap of its own, and comes back in any order; so
there is nothing to lock and no shared head or tail. A memory file has no name: it goes with the
last process that holds it, whatever way that one went.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Final

PAGE_BYTES: Final = 4096
"""Unit in which an arena is handed out."""

_F_SEAL_FUTURE_WRITE: Final = 0x0010
_SIZE_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_SEALS: Final = _SIZE_SEALS | _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL


class PageAllocator:
    """Contiguous first fit over a bitmap of pages."""

    def __init__(self, num_pages: int) -> None:
        """Begin with all of `num_pages` free."""
        self._free = (1 << num_pages) - 1
        self._taken: dict[int, int] = {}

    def allocate(self, num_pages: int) -> int | None:
        """Take the first gap of `num_pages` (at least 1); return its first page, or `None`."""
        starts = self._free
        width = 1
        while (
            width < num_pages and starts
        ):  # doubling: bit i stays set if `width` pages from i are free
            grow = min(width, num_pages - width)
            starts &= starts >> grow
            width += grow
        if not starts:
            return None
        first = (starts & -starts).bit_length() - 1
        self._free &= ~(((1 << num_pages) - 1) << first)
        self._taken[first] = num_pages
        return first

    def free(self, first: int) -> None:
        """Give back what `allocate` returned; raises `KeyError` for anything else."""
        self._free |= ((1 << self._taken.pop(first)) - 1) << first

    @property
    def num_free(self) -> int:
        """Pages that are free, in whatever gaps."""
        return self._free.bit_count()


class Arena:
    """A producer's writable mapping of one memory file, handed out by pages."""

    def __init__(self, num_bytes: int, *, populate: bool = False) -> None:
        """Make a file of `num_bytes`, in whole pages; with `populate` take all memory at once."""
        num_pages = -(-num_bytes // PAGE_BYTES)
        self.num_bytes = num_pages * PAGE_BYTES
        fd = os.memfd_create("stagemesh-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, self.num_bytes)
            flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if populate else 0)
            self._map = mmap.mmap(fd, self.num_bytes, flags=flags)
            # Our mapping stays writable, no later one can be: receivers only ever read.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(fd)
            raise
        self._fds: tuple[int, ...] = (fd,)
        self._view = memoryview(self._map)
        self._pages = PageAllocator(num_pages)

    def place(self, num_bytes: int) -> int | None:
        """Take room for `num_bytes` (at least 1); return its offset, or `None` without room."""
        first = self._pages.allocate(-(-num_bytes // PAGE_BYTES))
        return None if first is None else first * PAGE_BYTES

    def write(self, offset: int, data: memoryview) -> None:
        """Copy `data` to `offset`."""
        self._view[offset : offset + data.nbytes] = data

    def free(self, offset: int) -> None:
        """Give back what `place` returned."""
        self._pages.free(offset // PAGE_BYTES)

    @property
    def announced(self) -> bool:
        """Whether the receiver has been given the file."""
        return not self._fds

    def announce(self) -> tuple[int, ...]:
        """Hand over the descriptor of the file; nothing when that was done before."""
        fds, self._fds = self._fds, ()
        return fds

    def close(self) -> None:
        """Unmap; memory that a receiver has mapped lives on there."""
        self._view.release()
        self._map.close()
        for fd in self.announce():
            os.close(fd)


def map_sealed(fd: int, num_bytes: int) -> memoryview:
    """Map `num_bytes` of a foreign memory file read-only; the caller keeps `fd`.

    Raises `ValueError` when its size is another one or could still change, which would turn a later
    read into a crash.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ValueError(f"descriptor is no memory file: {error}") from error
    if seals & _SIZE_SEALS != _SIZE_SEALS or os.fstat(fd).st_size != num_bytes or num_bytes == 0:
        raise ValueError(f"memory file is not sealed at `{num_bytes}` bytes")
    return memoryview(mmap.mmap(fd, num_bytes, prot=mmap.PROT_READ))
