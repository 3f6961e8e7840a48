"""Which blocks of the key-value cache belong to whom. Numbers only; the memory is in `cache`.

A sequence may own any blocks, but neighbours in order are read without copying. So a new sequence
starts in the middle of the largest free run, which leaves it and the one before it room to grow,
and a sequence grows into the block behind its last while that is free.
"""

from __future__ import annotations


class BlockPool:
    """Hands out blocks; every block is free or belongs to one owner."""

    def __init__(self, num_blocks: int) -> None:
        """All blocks are free."""
        self._free = bytearray(b"\x01") * num_blocks
        self._num_free = num_blocks

    @property
    def num_blocks(self) -> int:
        """All blocks, free or not."""
        return len(self._free)

    @property
    def num_free(self) -> int:
        """Blocks that belong to nobody."""
        return self._num_free

    def grow(self, owned: list[int], count: int) -> None:
        """Add `count` free blocks to `owned`; there must be that many."""
        assert count <= self._num_free, "the caller has looked at `num_free`"
        while count:
            start, length = self._place(owned, count)
            owned.extend(range(start, start + length))
            self._free[start : start + length] = bytes(length)
            self._num_free -= length
            count -= length

    def release(self, owned: list[int]) -> None:
        """Take back all of `owned` and empty it."""
        for block in owned:
            assert not self._free[block], "a block is freed once"
            self._free[block] = 1
        self._num_free += len(owned)
        owned.clear()

    def _place(self, owned: list[int], count: int) -> tuple[int, int]:
        """Where the next run of at most `count` blocks goes."""
        if owned:
            start = owned[-1] + 1
            length = self._run_length(start, count)
            if length:
                return start, length
        start, length = self._largest_run()
        if count <= length // 2:
            start += length // 2
        return start, min(count, length)

    def _run_length(self, start: int, most: int) -> int:
        end = self._free.find(0, start, start + most)
        return (min(start + most, len(self._free)) if end < 0 else end) - start

    def _largest_run(self) -> tuple[int, int]:
        best, start = (0, 0), self._free.find(1)
        while start >= 0:
            length = self._run_length(start, len(self._free))
            if length > best[1]:
                best = (start, length)
            start = self._free.find(1, start + length)
        return best
