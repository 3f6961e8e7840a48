"""What is said about a network once, so that it runs in parallel as it is published: a `ModelPlan`.

It names the tensors that hold tokens and where they are cut and put together again, where attention
looks at them, which linear layers are cut by width, and what repeats. It knows modules by their
paths (`spec.module_path`) and sizes by the attributes that hold them, so one plan is that of every
size of a class. Nothing here needs torch: what a plan says about a real network is checked by
`parallel.bind_check`, and by running it without numbers in `parallel.rehearsal`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from stagemesh.spec.cost import Part
from stagemesh.spec.frozen import frozen


@frozen
class Split:
    """A tensor of tokens that every rank takes its own part of, before or after a module runs.

    Where it is a tuple or a list of tensors, as rotary tables are, each of them is cut. A dimension
    of size 1 is one value for all tokens, and stays.
    """

    module: str
    """Path of the module."""
    value: str | int
    """Name of a parameter of its `forward`, or index of one of its outputs."""
    dim: int
    """Dimension of the tokens, counted from the front."""
    streams: tuple[str, ...]
    """What lies along it, one stream after the other; each is cut on its own."""
    rank: int | None = None
    """How many dimensions it has."""
    optional: bool = False
    """Whether it may be missing, or have another rank and then nothing to do with tokens."""


@frozen
class Gather:
    """An output that is put together again, so that what follows sees all tokens."""

    module: str
    """Path of the module."""
    dim: int
    """Dimension of the tokens, counted from the front."""
    streams: tuple[str, ...]
    """What lies along it, one stream after the other."""
    value: int = 0
    """Index of the output; a single one has index 0."""
    rank: int | None = None
    """How many dimensions it has."""


class SiteRole(Enum):
    """What a rank has of the keys and values that its queries look at."""

    SELF = "self"
    """Its own part, like that of the queries: the ranks exchange."""
    JOINT = "joint"
    """Its own part of some streams, and all of others."""
    CROSS = "cross"
    """All of them: nothing is exchanged."""
    LOCAL = "local"
    """All of them, and all queries: the module runs before tokens are cut."""


@frozen
class AttentionSite:
    """Modules that call attention once for each time they run."""

    module: str
    """Path of the module, or of several."""
    role: SiteRole
    """What its ranks have."""
    streams: tuple[str, ...] = ()
    """Streams of the queries, in the order in which they are joined; none where it is local."""
    whole: tuple[str, ...] = ()
    """Streams of the keys that every rank has whole; of a joint site those of its queries too."""
    masked: bool = False
    """Whether it may be given a mask over its keys."""
    calls: int = 1
    """Calls of attention in one run of the module, at most."""
    optional: bool = False
    """Whether only some configurations of the network have it."""


class TpStyle(Enum):
    """How the weights of one module are cut by width."""

    COLUMN = "column"
    """By outputs: each rank has some heads or channels, and nothing is exchanged."""
    ROW = "row"
    """By inputs: what ranks put out is summed, and the bias is added after that, once."""
    NORM = "norm"
    """By channels that are normalised together: the mean of squares is taken over all ranks."""


@frozen
class TpRule:
    """One module, or the same one of every block, that is cut by width."""

    module: str
    """Path of the module."""
    style: TpStyle
    """How it is cut."""
    blocks: tuple[str | int, ...] = ()
    """Of a packed module: what lies side by side along the dimension that is cut, each cut on its
    own. Attributes that hold a size or a list of them, found from the block, or shares."""
    pieces: str | None = None
    """Attribute, found from the block, that counts what must not be cut, such as heads; `None`
    where every channel is one of its own."""
    uneven: bool = False
    """Whether ranks may have one piece more than others."""
    copies: bool = False
    """Whether ranks share a piece where there are fewer pieces than ranks, as with few kv heads."""
    optional: bool = False
    """Whether only some configurations of the network have it."""


@frozen
class HeadAttribute:
    """An attribute that counts heads or channels, and so differs on a rank of a cut network."""

    module: str
    """Path of the module, or of several."""
    name: str
    """The attribute; it is divided by the number of ranks."""
    ratio: tuple[str, str] | None = None
    """Where it is not divided but follows from two numbers of the whole network, found from the
    module: the rank's part of the first over that of the second, which is at least 1."""
    copies: bool = False
    """Whether it is 1 where there are more ranks than it counts."""
    optional: bool = False
    """Whether only some configurations of the network have it."""


@frozen
class HeadTable:
    """A table with an axis of heads, or of the channels of all heads, of which a rank has some."""

    module: str
    """Path of the module, or of several."""
    value: str | int
    """Name of a parameter of the module, or index of one of its outputs."""
    dim: int
    """Dimension of the heads, counted from the front."""
    pieces: str
    """Attribute, found from the block, that counts the heads."""
    optional: bool = False
    """Whether only some configurations of the network have it."""


class Formula(Enum):
    """How the outputs of two branches of guidance become one."""

    FROM_NEGATIVE = "negative + scale * (positive - negative)"
    FROM_POSITIVE = "positive + scale * (positive - negative)"


class Normalise(Enum):
    """What is done to the combined output; several pipelines do it only when they are asked."""

    NONE = "none"
    LAST_DIM = "last_dim"
    """It gets the length of the positive output along the last dimension."""
    STD = "std"
    """It gets the standard deviation of the positive output, mixed by a factor."""
    CLAMP = "clamp"
    """Its length over the whole tensor is at most a multiple of that of the positive output."""


@frozen
class Guidance:
    """The branches of classifier-free guidance, and how they are combined, on every rank alike."""

    branches: tuple[str, ...] = ("positive", "negative")
    """Names of the branches, the conditional one first."""
    combine: Formula = Formula.FROM_NEGATIVE
    """The formula of the pipeline, in its own order of operations."""
    normalise: Normalise = Normalise.NONE
    """What follows the formula."""


@frozen
class Limit:
    """A configuration of the class of which a part cannot be cut, though it can of others."""

    key: str
    """Key of the configuration."""
    value: object
    """What it holds there."""
    part: Part
    """What cannot be cut then."""
    reason: str
    """Why not."""


@frozen
class ModelPlan:
    """Everything that is said about one class of networks."""

    name: str
    """The class."""
    library: str
    """Package that exports it."""
    family: str
    """Name of the family for listings, such as `flux`."""
    streams: tuple[str, ...] = ()
    """Kinds of tokens that are cut, such as `img` and `txt`."""
    whole: tuple[str, ...] = ()
    """Kinds of tokens that every rank keeps whole."""
    splits: tuple[Split, ...] = ()
    """Where tokens are cut."""
    gathers: tuple[Gather, ...] = ()
    """Where they are put together again."""
    sites: tuple[AttentionSite, ...] = ()
    """Every module that calls attention."""
    tp: tuple[TpRule, ...] = ()
    """Modules that are cut by width; all others are whole on every rank."""
    attributes: tuple[HeadAttribute, ...] = ()
    """Attributes that differ on a rank of a network cut by width."""
    tables: tuple[HeadTable, ...] = ()
    """Tables with an axis of heads."""
    blocks: tuple[str, ...] = ()
    """Lists of the blocks that repeat: units of sharding, of compiling and of offloading."""
    guidance: Guidance | None = None
    """Its branches of guidance; `None` where it takes none."""
    limits: tuple[Limit, ...] = ()
    """Configurations of which less can be cut."""

    @property
    def parts(self) -> frozenset[Part]:
        """What of such a network can be cut."""
        return frozenset(self._parts())

    def _parts(self) -> Iterator[Part]:
        if self.tp:
            yield Part.WIDTH
        if self.splits:
            yield Part.TOKENS
        if self.guidance is not None:
            yield Part.BRANCHES
        if self.blocks:
            yield from (Part.SHARDS, Part.LAYERS)
