"""Where requests go: a replica of the first stages when one begins, of others when it comes there.

Requests that share their replicas are a family: the parent, and its companions. Which of them comes
to a stage first does not matter, all are bound there at once, by the key and cost of the oldest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from stagemesh.errors import InvalidRequestError, StageFailedError, StagemeshError
from stagemesh.runtime.core.actions import Ask, StageShape
from stagemesh.runtime.core.request import RequestMachine
from stagemesh.runtime.core.router import Bindings, Unroutable
from stagemesh.runtime.core.units import Units
from stagemesh.runtime.core.waves import Waves


class Entry:
    """One request that is not settled."""

    __slots__ = ("ask", "family", "machine", "route")

    def __init__(self, ask: Ask, machine: RequestMachine, parent: Entry | None) -> None:
        """It is bound nowhere, and belongs to the family of its parent."""
        self.ask: Final = ask
        self.machine: Final = machine
        self.family: Final[dict[str, Entry]] = {} if parent is None else parent.family
        """Those of them that are not settled, by name, oldest first."""
        self.route: Final[dict[int, int]] = {}
        """The replica of every stage that it is bound to."""


class Routes:
    """The bindings of all requests at all stages. Raises what a request ends with that has none."""

    def __init__(
        self, stages: Sequence[StageShape], bindings: Mapping[int, Bindings], units: Units
    ) -> None:
        """Bind by `bindings`, those of every stage; `units` are the stages that share processes."""
        self._units: Final = units
        self.waves: Final = Waves(stages)
        self._stages: Final = {shape.stage: shape for shape in stages}
        self._bindings: Final = bindings
        self._on_hold: Final[dict[int, set[int]]] = {stage: set() for stage in bindings}
        """Replicas that take nothing new, and live."""

    def joined(self, stage: int, replica: int) -> tuple[int, ...]:
        """A replica takes requests; return the stages whose replica may be given some now."""
        mates = self._units.joined(stage, replica)
        for mate in mates:
            self._bindings[mate].router.join(replica)
            self._on_hold[mate].discard(replica)
        return mates

    def retired(self, stage: int, replica: int) -> tuple[int, ...]:
        """A replica takes nothing new, but what has nowhere else to go; return all in its process.

        The same holds for them.
        """
        mates = self._units.gone(stage, replica)
        for mate in mates:
            if replica in self._bindings[mate].router.eligible:
                self._on_hold[mate].add(replica)
            self._bindings[mate].router.leave(replica)
        return mates

    def left(self, stage: int, replica: int) -> tuple[int, ...]:
        """A replica is gone; return all in its process, which has ended."""
        mates = self._units.gone(stage, replica)
        for mate in mates:
            self._bindings[mate].router.leave(replica)
            self._bindings[mate].lose(replica)
            self._on_hold[mate].discard(replica)
        return mates

    def choose(self, stage: int, key: str) -> int:
        """Choose a replica for what is counted elsewhere."""
        router = self._bindings[stage].router
        picked = router.pick(key)
        if isinstance(picked, Unroutable):
            raise self._unroutable(stage, picked)
        router.release(picked)
        return picked

    def require(self, stage: int, *, is_gone: bool = False) -> None:
        """Raise when no replica takes requests there, or when the only one that could is gone."""
        router = self._bindings[stage].router
        if is_gone or not router.has_eligible:
            raise self._unroutable(stage, router.why_none)

    def bind(self, entry: Entry, stage: int, leader: str | None) -> int:
        """Bind a request where `leader` is, or anywhere; one that is bound stays there.

        What goes to the process of another stage already goes to the replica in that process.
        """
        ask = entry.ask
        key = ask.keys.get(self._stages[stage].key, ask.name)
        bindings, on_hold = self._bindings[stage], self._on_hold[stage]
        if ask.session is not None:
            at: int | None = ask.session.route[stage]
        else:
            at = self._units.bound(stage, entry.route) if leader is None else None
        bound = bindings.bind(ask.name, key, ask.cost, leader, at)
        if bound is Unroutable.ALL_GONE and on_hold:  # it was taken on when there was somebody
            idlest = min(on_hold, key=lambda replica: (bindings.router.backlog[replica], replica))
            bound = bindings.bind_to(ask.name, idlest, ask.cost)
        if isinstance(bound, Unroutable):
            raise self._unroutable(stage, bound)
        entry.route[stage] = bound
        return bound

    def bind_first(self, entry: Entry) -> dict[int, int]:
        """Bind it to the stages that are told when it begins."""
        return {stage: self.bind(entry, stage, entry.ask.parent) for stage in self.waves.first}

    def bind_late(self, entry: Entry, stage: int) -> int:
        """Bind it to a stage that it comes to, and its family."""
        if stage not in entry.route:
            leader = None
            for each in entry.family.values():
                if each.machine.running:
                    self.bind(each, stage, leader)
                    leader = leader or each.ask.name
        return self.bind(entry, stage, None)  # it is bound, unless that replica has gone meanwhile

    def follow(self, entry: Entry) -> None:
        """Bind a companion wherever its family is."""
        self.bind_first(entry)
        for stage in self.waves.later:
            family = entry.family.items()
            leader = next((name for name, each in family if stage in each.route), None)
            if leader is not None:
                self.bind(entry, stage, leader)

    def unbind(self, entry: Entry) -> None:
        """A request has ended: forget the stages that it will not come to."""
        for stage in entry.machine.coming:
            self._bindings[stage].forget(entry.ask.name)
            entry.route.pop(stage, None)

    def _unroutable(self, stage: int, why: Unroutable) -> StagemeshError:
        name = self._stages[stage].name
        if why is Unroutable.PARENT_GONE:
            return InvalidRequestError("the request that it follows does not run", stage=name)
        told = f"stage `{name}` has no replica {'yet' if why is Unroutable.NONE_YET else 'left'}"
        return StageFailedError(told, stage=name, retryable=True)
