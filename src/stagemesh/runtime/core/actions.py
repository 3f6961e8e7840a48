"""What goes into the dispatcher, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, TypeAlias

from stagemesh.errors import StagemeshError
from stagemesh.runtime.core.router import RouterOptions
from stagemesh.spec.frozen import frozen

REQUEST_ID: Final = "request_id"
"""The key that every request has, and that stands in for one that it lacks."""


@frozen
class StageShape:
    """What the dispatcher knows of one stage."""

    stage: int
    """Its id."""
    name: str
    """Its name."""
    is_entry: bool = False
    """Whether nothing feeds it but the caller."""
    is_final: bool = False
    """Whether it has an edge to the caller."""
    chunks_to: tuple[int, ...] = ()
    """Stages that it feeds in chunks."""
    whole_to: tuple[int, ...] = ()
    """Stages that it feeds when it has ended."""
    key: str = REQUEST_ID
    """What is hashed where requests are routed by hash."""
    routing: RouterOptions = field(default_factory=RouterOptions)
    """How its requests are spread."""
    unit: int | None = None
    """Stages with the same number share processes, and so the replicas of each request."""


@frozen
class SessionRoute:
    """What the turns of a session have in common."""

    name: str
    """The session: its turns begin one after another, each when the one before it is settled."""
    route: Mapping[int, int]
    """The replica of every stage, whatever routers say."""


@frozen
class Ask:
    """A request as the dispatcher sees it."""

    name: str
    """Its name, unique among those that some replica holds."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """What it may be routed by, by the name of the key."""
    cost: int = 1
    """What it counts against `least_queue` and `hash`, in units that requests agree on."""
    parent: str | None = None
    """The request whose replicas it shares."""
    timeout_s: float | None = None
    """Seconds that it may take; `None` for as long as it takes."""
    session: SessionRoute | None = None
    """The session that it is a turn of."""


@frozen
class Begin:
    """Tell the replicas on the route of a request, consumers first."""

    name: str
    """The request."""
    epoch: int
    """What tells it from an earlier one of that name; later ones have higher numbers."""
    route: Mapping[int, int]
    """The replica of every stage that is told now."""


@frozen
class Enter:
    """Tell replicas of further stages, consumers first, and then those that feed them."""

    name: str
    """The request."""
    turn: int
    """When these are told, in one count with the epochs: what a replica is told of ascends."""
    route: Mapping[int, int]
    """The replica of each of these stages."""


@frozen
class Cancel:
    """Tell one replica to forget a request."""

    name: str
    """The request."""
    stage: int
    """The stage."""
    replica: int
    """Its replica."""


@frozen
class Ended:
    """A request is over for its user."""

    name: str
    """The request."""
    error: StagemeshError | None
    """Why it failed, or `None` when it finished."""
    stage: int | None = None
    """The stage that failed it, when one did."""


@frozen
class Settled:
    """Nobody holds a request any more; its name may be used again."""

    name: str
    """The request."""


Action: TypeAlias = Begin | Enter | Cancel | Ended | Settled
"""What the shell has to do."""
