"""Which replica of a stage takes a request, and how much each one holds. Counts in, a choice out.

policy         | decides by                  | ties and order                 | when a replica goes
`round_robin`  | the last pick               | ascending, then from the first | it is skipped
`random`       | nothing; uniform            |                                | the others share
`least_queue`  | costs in flight, exact      | as `round_robin`               | its share spreads
`hash`         | a key, and a bound on load  | the circle of hashes           | only its keys move
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final

from stagemesh.runtime.core.choosers import Chooser, LeastQueue, RoundRobin, Uniform
from stagemesh.runtime.core.hashing import Hashed
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import Policy


@frozen
class RouterOptions:
    """How a stage spreads its requests."""

    policy: Policy = Policy.ROUND_ROBIN
    """How a replica is chosen."""
    seed: int | None = None
    """Makes `random` repeatable."""
    load_bound: float = 1.25
    """With `hash`, times the even share that a replica may hold."""


class Unroutable(Enum):
    """Why no replica can take a request."""

    NONE_YET = "no replica has joined yet"
    """It may be waited for."""
    ALL_GONE = "no replica is left"
    """There were some: waiting does not help."""
    PARENT_GONE = "the request that it follows is not bound"
    """A companion cannot be served without its parent."""


_CHOOSERS: Final[Mapping[Policy, Callable[[RouterOptions], Chooser]]] = {
    Policy.ROUND_ROBIN: lambda _: RoundRobin(),
    Policy.RANDOM: lambda options: Uniform(options.seed),
    Policy.LEAST_QUEUE: lambda _: LeastQueue(),
    Policy.HASH: lambda options: Hashed(options.load_bound),
}


class Router:
    """The replicas of one stage, with the exact cost in flight on each."""

    def __init__(self, options: RouterOptions, replicas: Iterable[int] = ()) -> None:
        """Begin with `replicas`, all idle."""
        self._chooser = _CHOOSERS[options.policy](options)
        self._eligible: set[int] = set()
        self._backlog: dict[int, int] = {}
        for replica in replicas:
            self.join(replica)

    @property
    def eligible(self) -> frozenset[int]:
        """Replicas that can take requests."""
        return frozenset(self._eligible)

    @property
    def has_eligible(self) -> bool:
        """Whether any replica can take requests."""
        return bool(self._eligible)

    @property
    def why_none(self) -> Unroutable:
        """Why there is none, where there is none."""
        return Unroutable.ALL_GONE if self._backlog else Unroutable.NONE_YET

    @property
    def backlog(self) -> Mapping[int, int]:
        """Cost in flight by replica, of every one that ever joined."""
        return self._backlog

    @property
    def total(self) -> int:
        """Cost in flight on all of them."""
        return sum(self._backlog.values())

    def join(self, replica: int) -> None:
        """It takes requests from now on; what is still bound to that number stays counted."""
        backlog = self._backlog.setdefault(replica, 0)
        if replica not in self._eligible:
            self._eligible.add(replica)
            self._chooser.add(replica, backlog)

    def leave(self, replica: int) -> None:
        """Give it nothing more; what is bound to it is still to be released."""
        if replica in self._eligible:
            self._eligible.discard(replica)
            self._chooser.remove(replica, self._backlog[replica])

    def pick(self, key: str = "", cost: int = 1) -> int | Unroutable:
        """Choose a replica and count `cost` on it, or say why there is none."""
        if not self._eligible:
            return self.why_none
        replica = self._chooser.choose(key, cost)
        self._count(replica, cost)
        return replica

    def follow(self, replica: int, cost: int = 1) -> None:
        """Count a request on the replica of what it follows, whether that takes others or not."""
        self._count(replica, cost)

    def release(self, replica: int, cost: int = 1) -> None:
        """What was counted on that replica has ended there."""
        self._count(replica, -cost)

    def _count(self, replica: int, cost: int) -> None:
        old = self._backlog[replica]
        new = self._backlog[replica] = old + cost
        assert new >= 0, f"replica {replica} has nothing to release"
        if replica in self._eligible:
            self._chooser.moved(replica, old, new)


class _Bound:
    """What one request holds of a stage."""

    __slots__ = ("cost", "held", "lost", "replica")

    def __init__(self, replica: int, cost: int) -> None:
        self.replica = replica
        self.cost = cost
        self.held = True
        self.lost = False


class Bindings:
    """Which replica of a stage each request is bound to: chosen once, and never again."""

    def __init__(self, router: Router) -> None:
        """Choose by `router`."""
        self.router: Final = router
        self._bound: dict[str, _Bound] = {}

    def __len__(self) -> int:
        return len(self._bound)

    def of(self, request: str) -> int | None:
        """The replica that serves a request here, or has served it and still lives."""
        bound = self._bound.get(request)
        return None if bound is None or bound.lost else bound.replica

    def bind(
        self,
        request: str,
        key: str = "",
        cost: int = 1,
        parent: str | None = None,
        at: int | None = None,
    ) -> int | Unroutable:
        """Bind a request; one that is bound already stays where it is.

        A companion, which has a `parent`, goes where its parent is; one that belongs `at` a replica
        goes there, whether that takes others or not.
        """
        held = self._bound.get(request)
        if held is not None:
            return Unroutable.PARENT_GONE if held.lost else held.replica
        if at is not None:
            return self.bind_to(request, at, cost)
        if parent is None:
            replica = self.router.pick(key, cost)
            if not isinstance(replica, Unroutable):
                self._bound[request] = _Bound(replica, cost)
            return replica
        followed = self.of(parent)
        return Unroutable.PARENT_GONE if followed is None else self.bind_to(request, followed, cost)

    def bind_to(self, request: str, replica: int, cost: int = 1) -> int:
        """Bind a request to that replica, whether it takes others or not."""
        self.router.follow(replica, cost)
        self._bound[request] = _Bound(replica, cost)
        return replica

    def lose(self, replica: int) -> None:
        """The process behind a replica is gone: who was bound to it is not found at its successor.

        What was counted stays counted until it is released.
        """
        for bound in self._bound.values():
            if bound.replica == replica:
                bound.lost = True

    def release(self, request: str) -> None:
        """The replica holds the request no more; saying so again changes nothing."""
        bound = self._bound.get(request)
        if bound is not None and bound.held:
            bound.held = False
            self.router.release(bound.replica, bound.cost)

    def forget(self, request: str) -> None:
        """Nobody follows the request any more."""
        self.release(request)
        self._bound.pop(request, None)
