"""L1 of an axis: how requests or tensors are routed over it and how its results come together.

Both hierarchies are closed: subclassing a pattern outside this module raises `TypeError`. New axes
pick from these patterns; they cannot add one, because the runtime has to know what each pattern
means.
"""

from __future__ import annotations

from enum import Enum

from stagemesh.spec.frozen import frozen


class Policy(Enum):
    """How one of several equal receivers is chosen."""

    ROUND_ROBIN = "round_robin"
    """The next one in ascending order."""
    RANDOM = "random"
    """Any one, uniformly."""
    LEAST_QUEUE = "least_queue"
    """The one with the fewest requests in flight; ties go round."""
    HASH = "hash"
    """The one that a key of the request maps to."""

    @classmethod
    def parse(cls, text: str) -> Policy | None:
        """Read either spelling: `round_robin`, `round-robin`, `least-queue-length`; else `None`."""
        name = text.replace("-", "_")
        name = {"least_queue_length": "least_queue"}.get(name, name)
        return next((policy for policy in cls if policy.value == name), None)

    @property
    def flag(self) -> str:
        """Its spelling as a value of `--omni-lb-policy`."""
        return "least-queue-length" if self is Policy.LEAST_QUEUE else self.value.replace("_", "-")


class _Closed:
    """Base that refuses subclasses from other modules."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        if cls.__module__ != __name__:
            message = f"`{cls.__qualname__}`: routing and aggregation patterns are closed"
            raise TypeError(message)
        super().__init_subclass__()


class Routing(_Closed):
    """How work enters an axis."""

    __slots__ = ()


@frozen
class Broadcast(Routing):
    """Every rank gets the whole input."""


@frozen
class PartitionByHash(Routing):
    """Each item goes to the rank its key maps to."""

    key: str = "request_id"
    """What is hashed."""


@frozen
class ShardSequence(Routing):
    """The sequence dimension is split over the ranks."""

    dim: int = 1
    """Tensor dimension that is split."""


@frozen
class ShardSpatial(Routing):
    """Height and width are split into a grid of tiles."""

    grid: tuple[int, int] | None = None
    """Rows and columns; `None` lets the model choose."""


@frozen
class RouteByExpert(Routing):
    """Each token goes to the ranks that hold its experts."""

    router_id: str = "default"
    """Which router of the model decides."""


@frozen
class PipelineMicrobatch(Routing):
    """The batch passes through the ranks in micro-batches."""

    num_microbatches: int = 1
    """How many parts a batch is cut into."""


@frozen
class DuplicateWithCondTag(Routing):
    """The input is copied, each copy tagged with its guidance branch."""

    flag: str = "cfg_branch"
    """Name of the tag."""


@frozen
class RouteByStage(Routing):
    """Each request goes to one of several equal receivers."""

    policy: Policy = Policy.ROUND_ROBIN
    """How the receiver is chosen."""


class Aggregation(_Closed):
    """How results leave an axis."""

    __slots__ = ()


@frozen
class TakeRank(Aggregation):
    """One rank's result is the result."""

    rank: int = 0
    """That rank."""


@frozen
class Union(Aggregation):
    """The ranks' results are disjoint and are put together."""


@frozen
class GatherDim(Aggregation):
    """Shards are concatenated along a dimension."""

    dim: int = 1
    """Tensor dimension that is gathered."""


@frozen
class AllGather(Aggregation):
    """Every rank gets all shards."""

    dim: int = 1
    """Tensor dimension that is gathered."""


@frozen
class StitchSpatial(Aggregation):
    """Tiles are stitched back into one picture."""

    grid: tuple[int, int] | None = None
    """Rows and columns; `None` lets the model choose."""


@frozen
class StitchPipeline(Aggregation):
    """Micro-batches leave the last rank in order."""


@frozen
class Combine(Aggregation):
    """Branches are reduced into one result."""

    reducer: str = "cfg"
    """Which reduction."""


@frozen
class FanInByStage(Aggregation):
    """Results of all receivers flow into the same next stage."""
