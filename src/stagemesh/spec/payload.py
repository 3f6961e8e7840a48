"""What travels on an edge: metadata plus named buffers, without any torch or numpy type.

A received buffer is *borrowed*: it is valid until `Payload.release` and read-only. Whoever keeps
data longer copies it first. Releasing returns the memory (and its credit) to the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Final

from stagemesh.spec.frozen import frozen

ALIGNMENT: Final = 64
"""Bytes every buffer starts on a multiple of."""

DTYPE_BYTES: Final[Mapping[str, int]] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
"""Every dtype a buffer may have, and the bytes of one element."""

_OWN_BYTES: Final = 256
"""What a payload counts beside its data, so that empty ones do not come without end."""

MetaScalar = str | int | float | bool | None
MetaValue = MetaScalar | list[MetaScalar]
"""A value of the metadata: a JSON scalar or a flat list of them."""


@frozen
class Buffer:
    """One named array in row-major order."""

    name: str
    """Name of the array, unique within its payload."""
    dtype: str
    """A key of `DTYPE_BYTES`."""
    shape: tuple[int, ...]
    """Sizes of the dimensions; an empty tuple is a scalar."""
    data: memoryview = field(repr=False)
    """The bytes, C-contiguous, format `B`, of exactly `num_bytes`."""

    @property
    def num_bytes(self) -> int:
        """Bytes the shape and dtype ask for."""
        size = DTYPE_BYTES[self.dtype]
        for extent in self.shape:
            size *= extent
        return size

    def copied(self) -> Buffer:
        """The same in memory of its own."""
        data = memoryview(bytes(self.data))
        return Buffer(name=self.name, dtype=self.dtype, shape=self.shape, data=data)


def _nothing() -> None:
    return None


@frozen
class Payload:
    """One message between two stages, or between a stage and the caller."""

    meta: Mapping[str, MetaValue] = field(default_factory=dict)
    """Small facts about the payload; never bulk data."""
    buffers: tuple[Buffer, ...] = ()
    """The bulk data."""
    release: Callable[[], None] = field(default=_nothing, compare=False, repr=False)
    """Gives borrowed memory back; calling it again does nothing."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum([buffer.data.nbytes for buffer in self.buffers])

    @property
    def weight(self) -> int:
        """What it counts for where memory is bounded: its data, and something for being there."""
        weight = _OWN_BYTES
        for buffer in self.buffers:
            weight += buffer.data.nbytes
        for value in self.meta.values():
            if isinstance(value, (str, list)):
                weight += 8 * len(value)
        return weight

    def only(self, *, meta: Collection[str] = (), buffers: Collection[str] = ()) -> None:
        """Raise `ValueError` naming what it holds beside these; nobody would read that."""
        held = (("meta", meta, self.meta), ("buffers", buffers, [one.name for one in self.buffers]))
        for part, known, names in held:
            if unknown := sorted(set(names) - set(known)):
                allowed = ", ".join(f"`{name}`" for name in known) or "nothing"
                raise ValueError(f"`{part}` holds `{unknown[0]}`, known here: {allowed}")

    def copied(self) -> Payload:
        """The same in memory of its own, to keep beyond `release`."""
        buffers = tuple([buffer.copied() for buffer in self.buffers])
        return Payload(meta=dict(self.meta), buffers=buffers)

    def buffer(self, name: str) -> Buffer:
        """Return the buffer called `name`; raise `KeyError` listing what there is."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        have = ", ".join(f"`{buffer.name}`" for buffer in self.buffers) or "none"
        raise KeyError(f"payload has no buffer `{name}`; it has {have}")
