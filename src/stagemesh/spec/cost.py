"""What an axis cuts into pieces, what its ranks send for that, and what memory it takes.

Each axis says so in its own file. Engines and the planner multiply pieces and add up costs, and
know no axis by name. The formulas and their sources are in `docs/concepts/memory-and-cost.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen


class Part(Enum):
    """What an axis can cut: each of its ranks has one piece."""

    LAYERS = "layers"
    """The network by whole layers."""
    WIDTH = "width"
    """Every layer, by heads and channels."""
    EXPERTS = "experts"
    """The experts of a mixture."""
    SHARDS = "shards"
    """Weights at rest; they are put together for the time that they are computed with."""
    TOKENS = "tokens"
    """The sequence."""
    BRANCHES = "branches"
    """The branches of guidance."""
    REQUESTS = "requests"
    """Requests as a whole."""
    ENCODERS = "encoders"
    """The text encoders inside a denoising stage, by heads and channels."""
    TILES = "tiles"
    """The decoded picture, by tiles that overlap."""
    BANDS = "bands"
    """The decoded picture, by bands that exchange their edges."""


ONLY_SAVE_MEMORY: Final = frozenset(
    {Part.LAYERS, Part.SHARDS, Part.ENCODERS, Part.TILES, Part.BANDS}
)
"""Parts whose cutting makes no forward faster."""

Pieces: TypeAlias = Mapping[Part, int]
"""Into how many pieces each part is cut; a part that is missing is whole."""

Cuts: TypeAlias = Callable[[int, object], Pieces]
"""What an axis cuts, by its size and its options."""


def cuts(*parts: Part) -> Cuts:
    """Return what an axis says that cuts these parts into as many pieces as it is large."""
    return lambda size, _options: dict.fromkeys(parts, size)


@frozen
class Work:
    """What is done on the way through a network; ranks with different layers do it in turn."""

    flops: float
    """Operations of one rank for each layer."""
    read_bytes: float
    """Bytes of weights and cache that are read for them."""


@frozen
class Forward:
    """One run of a stage's network, as its engine would do it; bytes and times follow from it."""

    tokens: int
    """Tokens that it computes, those of the prompt included, before any axis cuts them."""
    element_bytes: int
    """Bytes of one number between layers."""
    weight_bytes: int | None = None
    """Bytes of the network, before any axis cuts it, when they are known."""
    work: Work | None = None
    """What a rank has to do for it, when the weights are known."""
    repeats: int = 1
    """Runs that one nominal request takes on a rank, one after another."""
    batch: int = 1
    """Requests that one run serves."""


@frozen
class CostView:
    """The effective layout of a stage, as an axis sees it while it counts."""

    sizes: Mapping[str, int]
    """Size of every declared axis."""
    options: object
    """Options of the axis that is asked: an instance of its `options` type."""
    pieces: Pieces
    """What all axes of the stage together cut."""
    facts: StageFacts
    """What the checkpoint says."""
    forward: Forward
    """One run of the network."""

    def size(self, axis: str) -> int:
        """Size of an axis; 1 when it is not declared."""
        return self.sizes.get(axis, 1)

    def cut(self, part: Part) -> int:
        """Into how many pieces `part` is cut."""
        return self.pieces.get(part, 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each rank that shares the sequence; text and the rest are split apart."""
        count = self.cut(Part.TOKENS)
        others, text = even(self.picture, count), even(self._text, count)
        if self.facts.keeps_text_whole:
            return others
        return tuple(map(sum, zip(others, text, strict=True)))

    @property
    def whole_text(self) -> int:
        """Tokens of the prompt that every rank keeps."""
        return self._text if self.facts.keeps_text_whole else 0

    @property
    def picture(self) -> int:
        """Tokens that are not of the prompt."""
        return self.forward.tokens - self._text

    @property
    def _text(self) -> int:
        return min(self.facts.text_length or 0, self.forward.tokens)


@frozen
class Cost:
    """What one axis costs the rank that pays most."""

    sent_bytes: int = 0
    """Bytes that it sends."""
    collectives: int = 0
    """Collectives that it takes part in."""
    memory_bytes: int = 0
    """Memory that they need besides weights and activations."""
    hidden: float = 0.0
    """Share of the time of sending that can pass while the rank computes."""
    per_request: bool = False
    """Whether all this comes once in a request, rather than in every run of the network."""


def even(total: int, count: int) -> tuple[int, ...]:
    """Split as evenly as whole numbers allow; the first shares are the larger ones."""
    least, more = divmod(total, count)
    return tuple(least + (index < more) for index in range(count))
