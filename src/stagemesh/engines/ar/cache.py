"""Keys and values of every layer in blocks, and the part of them that one step writes and reads.

Shape suffixes: b batch (1), t tokens of the step, c tokens of one sequence (its context), k key and
value heads, d head width, s slots (a block is `block_size` neighbouring slots).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import torch

from stagemesh.engines.ar.scheduler import Chunk
from stagemesh.spec.frozen import frozen


@frozen
class LayerShape:
    """What one layer keeps of one token."""

    num_kv_heads: int
    """Key and value heads."""
    key_dim: int
    """Width of a key."""
    value_dim: int
    """Width of a value."""

    @property
    def num_elements(self) -> int:
        """Numbers of one token."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


@frozen
class Segment:
    """One sequence's part of a step."""

    start: int
    """Index of its first token in the step."""
    count: int
    """Its tokens in the step."""
    length: int
    """Its tokens in the cache once the step has written, these included."""
    slots: range | torch.Tensor
    """Its slots in order; a range, read without copying, while its blocks are neighbours."""
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)
    """Masks already made for it, by window; the same for every layer."""


@frozen
class Layout:
    """Where the tokens of one step are in the cache."""

    segments: tuple[Segment, ...]
    """One per sequence, those with one token first."""
    slots_t: torch.Tensor
    """Slot of every token of the step."""
    positions_t: torch.Tensor
    """Position of every token in its sequence."""


class KvCache:
    """The memory behind a `BlockPool` of the same number of blocks."""

    def __init__(
        self,
        shapes: Sequence[LayerShape],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Allocate all of it; on a CPU the system gives the pages when they are first written."""
        self._block_size = block_size
        self._device = device
        slots = num_blocks * block_size

        def empty(shape: LayerShape, dim: int) -> torch.Tensor:
            return torch.empty(1, shape.num_kv_heads, slots, dim, dtype=dtype, device=device)

        self._keys_bksd = [empty(shape, shape.key_dim) for shape in shapes]
        self._values_bksd = [empty(shape, shape.value_dim) for shape in shapes]

    def num_kv_heads(self, layer: int) -> int:
        """Key and value heads of a layer."""
        return self._keys_bksd[layer].shape[1]

    def write(
        self, layer: int, slots_t: torch.Tensor, key_bktd: torch.Tensor, value_bktd: torch.Tensor
    ) -> None:
        """Keep the keys and values of a step."""
        self._keys_bksd[layer].index_copy_(2, slots_t, key_bktd)
        self._values_bksd[layer].index_copy_(2, slots_t, value_bktd)

    def read(self, layer: int, segment: Segment) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of a whole sequence, `[b, k, c, d]`."""
        keys_bksd, values_bksd = self._keys_bksd[layer], self._values_bksd[layer]
        if isinstance(segment.slots, range):
            start, length = segment.slots.start, segment.length
            return keys_bksd.narrow(2, start, length), values_bksd.narrow(2, start, length)
        return keys_bksd.index_select(2, segment.slots), values_bksd.index_select(2, segment.slots)

    def layout(self, chunks: Sequence[Chunk]) -> Layout:
        """Lay the chunks of a step one after another; those of one token must come first."""
        segments, slots, positions, start = list[Segment](), list[int](), list[int](), 0
        for chunk in chunks:
            blocks, length = chunk.sequence.blocks, chunk.start + chunk.count
            first = blocks[0] * self._block_size
            own = range(first, first + length)
            contiguous = blocks[-1] - blocks[0] == len(blocks) - 1 and blocks == sorted(blocks)
            if contiguous:
                slots.extend(own[chunk.start :])
                where: range | torch.Tensor = own
            else:
                scattered = self._slots(blocks, length)
                slots.extend(scattered[chunk.start :])
                where = torch.tensor(scattered, device=self._device)
            segments.append(Segment(start=start, count=chunk.count, length=length, slots=where))
            positions.extend(range(chunk.start, length))
            start += chunk.count
        return Layout(
            segments=tuple(segments),
            slots_t=torch.tensor(slots, device=self._device),
            positions_t=torch.tensor(positions, device=self._device),
        )

    def _slots(self, blocks: Sequence[int], length: int) -> list[int]:
        size = self._block_size
        return [slot for block in blocks for slot in range(block * size, (block + 1) * size)][
            :length
        ]
