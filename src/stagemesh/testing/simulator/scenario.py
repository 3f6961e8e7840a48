"""What a seed stands for: a pipeline, its limits, requests and their users, and what goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stagemesh.runtime.core.actions import Ask, StageShape
from stagemesh.runtime.core.credits import Limits
from stagemesh.runtime.core.router import RouterOptions
from stagemesh.runtime.core.windows import StageWindow
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import Policy
from stagemesh.testing.simulator.clock import Clock

FOREVER: Final = 1_000_000
_TOPOLOGIES: Final = (
    ((0, 1), (1, 2)),
    ((0, 1),),
    (),
    ((0, 1), (1, 2)),
    ((0, 1), (0, 2)),
    ((0, 2), (1, 2)),
    ((0, 1), (0, 2), (1, 2)),
)
_SHARING: Final = 8
"""One history in so many has stages that share processes."""
_POLICIES: Final = tuple(Policy)
_FAULTS: Final = ("kill", "cancel", "fail", "drain", "join", "kill", "cancel")
_SPAN: Final = 120
"""Events of a history of the usual length: faults fall anywhere within them."""


@frozen
class User:
    """A request and who makes it."""

    ask: Ask
    """The request."""
    at: int
    """When it is made."""
    chunks: int
    """How many outputs every stage puts out for it."""
    pace: int
    """Ticks between two reads, at most; `FOREVER` for one who does not read."""


@frozen
class Fault:
    """Something that goes wrong, or changes."""

    event: int
    """After how many events."""
    kind: str
    """What."""
    choice: int
    """Whom it meets, among those whom it can."""


@frozen
class Scenario:
    """Everything that a seed decides in advance."""

    seed: int
    """The seed."""
    stages: tuple[StageShape, ...]
    """The stages."""
    edges: tuple[tuple[int, int], ...]
    """Which stage feeds which."""
    chunked: bool
    """Whether stages hand over chunks, or all at once."""
    replicas: tuple[int, ...]
    """Replicas of every stage."""
    slots: tuple[int, ...]
    """Requests that a replica of every stage serves at a time."""
    window: int
    """Requests that a replica of the entry stage is sent at a time."""
    queue_limit: int | None
    """Requests taken on beyond the slots."""
    limits: Limits
    """What an edge carries."""
    spread: int
    """Most ticks that a message takes."""
    users: tuple[User, ...]
    """The requests."""
    faults: tuple[Fault, ...]
    """What goes wrong, by event."""

    def mates(self, stage: int) -> tuple[int, ...]:
        """The stages in the processes of a stage, itself included."""
        unit = self.stages[stage].unit
        if unit is None:
            return (stage,)
        return tuple(shape.stage for shape in self.stages if shape.unit == unit)

    @property
    def first(self) -> set[int]:
        """Stages that are told when a request begins."""
        fed = set() if self.chunked else {target for _, target in self.edges}
        return set(range(len(self.stages))) - fed

    @property
    def calm(self) -> bool:
        """Whether nothing goes wrong, so that every request taken on has to finish."""
        return not self.faults and all(user.pace != FOREVER for user in self.users)


def draw(seed: int, clock: Clock) -> Scenario:
    """Draw the scenario of a seed."""
    below = clock.below
    edges = _TOPOLOGIES[below(len(_TOPOLOGIES))]
    num_stages = 1 + max((target for _, target in edges), default=0)
    sources = {target for _, target in edges}
    feeds = {source for source, _ in edges}
    is_calm = below(4) == 0
    slots = tuple(1 + below(3) for _ in range(num_stages))
    users = tuple(_user(number, clock, is_calm=is_calm) for number in range(2 + below(4)))
    faults = () if is_calm else tuple(_fault(clock) for _ in range(1 + below(4)))
    stages = tuple(
        StageShape(
            stage=stage,
            name=f"s{stage}",
            is_entry=stage not in sources,
            is_final=stage not in feeds or below(4) == 0,
            key="user" if below(2) else "request_id",
            routing=RouterOptions(policy=_POLICIES[below(len(_POLICIES))], seed=seed),
        )
        for stage in range(num_stages)
    )
    chunked = below(4) != 0
    replicas = tuple(1 + below(3) for _ in range(num_stages))
    unit = _unit(seed, num_stages)
    return Scenario(
        seed=seed,
        stages=tuple(
            _connected(_shared(shape, stages, unit), edges, chunked=chunked) for shape in stages
        ),
        edges=edges,
        chunked=chunked,
        replicas=tuple(
            replicas[unit[0] if stage in unit else stage] for stage in range(num_stages)
        ),
        slots=slots,
        window=slots[0] + below(2),
        queue_limit=below(4) if below(3) == 0 else None,
        limits=_limits(clock),
        spread=(1, 3, 12)[below(3)],
        users=users,
        faults=tuple(sorted(faults, key=lambda fault: fault.event)),
    )


def _connected(
    shape: StageShape, edges: tuple[tuple[int, int], ...], *, chunked: bool
) -> StageShape:
    targets = tuple(target for source, target in edges if source == shape.stage)
    return replace(shape, chunks_to=targets) if chunked else replace(shape, whole_to=targets)


def _shared(shape: StageShape, stages: tuple[StageShape, ...], unit: tuple[int, ...]) -> StageShape:
    if shape.stage not in unit:
        return shape
    host = stages[unit[0]]
    return replace(shape, unit=host.stage, routing=host.routing, key=host.key)


def _unit(seed: int, num_stages: int) -> tuple[int, ...]:
    """Return two stages that share processes, or none; nothing is drawn for it."""
    number, is_other = divmod(seed, _SHARING)
    if is_other or num_stages == 1:
        return ()
    alone = number % num_stages if num_stages > 2 else num_stages  # noqa: PLR2004  two share
    return tuple(stage for stage in range(num_stages) if stage != alone)


def _limits(clock: Clock) -> Limits:
    below = clock.below
    window = None
    if below(3) == 0:
        unit = "chunks" if below(2) else "requests"
        window = StageWindow(**{unit: 1 + below(2)})
    return Limits(
        chunks=1 + below(3), stream_bytes=3 + below(4), edge_bytes=3 + below(6), window=window
    )


def _user(number: int, clock: Clock, *, is_calm: bool) -> User:
    below = clock.below
    paces = (1, 4, 4) if is_calm else (1, 4, 40, FOREVER)
    follows = number > 0 and below(6) == 0
    ask = Ask(
        name=f"r{number if is_calm or follows else below(3)}",
        keys={"user": "abc"[below(3)]},
        cost=1 + below(2),
        parent=f"r{number - 1}" if follows else None,
        timeout_s=FOREVER if is_calm else 100 + below(400),
    )
    return User(ask=ask, at=below(60), chunks=1 + below(4), pace=paces[below(len(paces))])


def _fault(clock: Clock) -> Fault:
    kind = _FAULTS[clock.below(len(_FAULTS))]
    return Fault(event=clock.below(_SPAN), kind=kind, choice=clock.below(1 << 16))
