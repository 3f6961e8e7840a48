"""What is said about a VAE, so that several ranks decode or encode one picture: a `VaePlan`.

Tiles need to know how large they are; bands, which exchange their edges at every convolution, need
to know what each class of modules does to a picture. Both are said about classes of modules, not
about paths: one rule holds wherever a module of the class stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from stagemesh.spec.cost import Part
from stagemesh.spec.frozen import frozen


class VaeRole(Enum):
    """What a module does with a band of a picture, whose rows and columns are the last dimensions.

    What is inside of a module is looked at only where it resizes or is composed.
    """

    POINTWISE = "pointwise"
    """Each pixel on its own, or only along channels and frames."""
    CONV = "conv"
    """It sees rows of its neighbours, as many as its kernel, step and padding say."""
    DOWN = "down"
    """A convolution with a step that adds a row at the end of the picture, and sees one below."""
    STATISTICS = "statistics"
    """It normalises by statistics of the whole picture, which are summed over the ranks."""
    GATHERED = "gathered"
    """It sees the whole picture, as attention does: it is gathered before, and cut again after."""
    PAD = "pad"
    """It adds rows at the edges of the picture: only the ranks at the edge do."""
    RESIZE = "resize"
    """It repeats or joins rows by a whole factor, each band on its own."""
    COMPOSED = "composed"
    """It only calls modules that have rules of their own."""


@frozen
class VaeRule:
    """What modules of one class do."""

    kind: str
    """Name of the class."""
    role: VaeRole
    """What they do."""


@frozen
class TileRule:
    """Where a VAE has the sizes of its tiles, in pixels of the picture."""

    height: str
    """Attribute with the height of a tile."""
    width: str
    """Attribute with the width of a tile."""
    stride_height: str | None = None
    """Attribute with the distance of tiles; `None` where they overlap by a share instead."""
    stride_width: str | None = None
    """The same along the width."""
    overlap_height: str | None = None
    """Attribute with the share of a tile that lies over the one before."""
    overlap_width: str | None = None
    """The same along the width."""
    encode: str = "tiled_encode"
    """Method that encodes a picture in tiles."""
    decode: str = "tiled_decode"
    """Method that decodes one in tiles."""


class CausalCache(Enum):
    """How a VAE of clips keeps frames between the pieces in time that it works on."""

    NONE = "none"
    """It works on all frames at once."""
    LIST = "list"
    """In a list on itself, one entry for each causal convolution, counted as it goes."""
    RETURNED = "returned"
    """Each module takes what it kept and returns it anew."""


@frozen
class VaePlan:
    """Everything that is said about one class of VAEs."""

    name: str
    """The class."""
    library: str
    """Package that exports it."""
    family: str
    """Name of the family for listings."""
    tiles: TileRule
    """Its tiles."""
    rules: tuple[VaeRule, ...]
    """What each class of modules inside does; one that is missing cannot be cut into bands."""
    halves: tuple[str, ...] = ("encoder", "decoder")
    """Modules that bands go through."""
    cache: CausalCache = CausalCache.NONE
    """How frames are kept."""
    counted: str | None = None
    """Class of the convolutions that a list counts; it is counted before any is replaced."""

    @property
    def parts(self) -> frozenset[Part]:
        """What of a picture can be cut."""
        return frozenset(self._parts())

    def _parts(self) -> Iterator[Part]:
        yield Part.TILES
        if self.rules:
            yield Part.BANDS

    def role(self, kind: str) -> VaeRole | None:
        """What modules of a class do; `None` where nothing is said."""
        return next((rule.role for rule in self.rules if rule.kind == kind), None)
