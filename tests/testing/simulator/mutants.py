"""Machines with one rule broken each, and the rules of the simulator that must notice."""

# ruff: noqa: D102  the class says which rule it breaks; its methods are how
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from stagemesh.errors import StagemeshError
from stagemesh.runtime.core.actions import Action as Outgoing
from stagemesh.runtime.core.actions import Ask, Enter, StageShape
from stagemesh.runtime.core.admission import Admission
from stagemesh.runtime.core.credits import Grant, Inflow, Limits, Outflow, StreamKey, _Out
from stagemesh.runtime.core.dispatcher import Dispatcher, Parts
from stagemesh.runtime.core.membership import Change, Membership
from stagemesh.runtime.core.request import Action, Release, RequestMachine, SendCancel
from stagemesh.runtime.core.router import Bindings, Router, Unroutable
from stagemesh.runtime.core.routes import Entry, Routes
from stagemesh.runtime.core.units import Units
from stagemesh.runtime.core.windows import StageWindow
from stagemesh.testing.simulator.setting import Rules
from stagemesh.testing.simulator.world import simulate


class KeepsCredit(Inflow):
    """A stream that is dropped gives no credit back."""

    def drop(self, stream: StreamKey) -> list[Grant]:
        super().drop(stream)
        return []


class GrantsTwice(Inflow):
    """Credit is given when a chunk is done with, and again when its stream is dropped."""

    def consumed(self, stream: StreamKey, seq: int) -> Grant | None:
        size = self._streams[stream].held.get(seq) if stream in self._streams else None
        return None if size is None else Grant(stream=stream, size=size)


class WideStream(Outflow):
    """The window of a stream is not kept."""

    def _has_room(self, found: _Out) -> bool:  # noqa: ARG002
        return True


class WideEdge(Outflow):
    """The budget of an edge is not kept."""

    def __init__(self, limits: Limits) -> None:
        wide = Limits(chunks=limits.chunks, stream_bytes=limits.stream_bytes, window=limits.window)
        super().__init__(wide)


class OldestWaits(Outflow):
    """The oldest stream has no right of way: the budget goes to whoever asks first."""

    def _may_go(self, stream: StreamKey) -> bool:
        waits = self._streams[stream].waits or 0
        return self._used + waits <= self._limits.edge_bytes and super()._may_go(stream)


class LeavesItsChunk(Outflow):
    """Closing a stream keeps what waits of it."""

    def close(self, stream: StreamKey) -> list[StreamKey]:
        found = self._streams.get(stream)
        if found is None or found.waits is None:
            return super().close(stream)
        return []


class _GreedyWindow(StageWindow):
    """Keeps no place for the oldest request."""

    def admits_chunk(self, total: int, *, is_oldest: bool, oldest_has_none: bool) -> bool:  # noqa: ARG002
        return self.chunks is None or total < self.chunks


class KeepsNoPlace(Outflow):
    """Younger requests may fill a window of `stage_pp`."""

    def __init__(self, limits: Limits) -> None:
        window = limits.window
        if window is not None:
            window = _GreedyWindow(requests=window.requests, chunks=window.chunks)
        super().__init__(
            Limits(
                chunks=limits.chunks,
                stream_bytes=limits.stream_bytes,
                edge_bytes=limits.edge_bytes,
                window=window,
            )
        )


class NoStageWindow(Outflow):
    """A window of `stage_pp` is not kept."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(
            Limits(
                chunks=limits.chunks,
                stream_bytes=limits.stream_bytes,
                edge_bytes=limits.edge_bytes,
            )
        )


class EndsTwice(RequestMachine):
    """A request that has ended ends again."""

    def cancel(self, error: StagemeshError) -> list[Action]:
        self._running = True
        return super().cancel(error)


class CancelsTwice(RequestMachine):
    """Every cancel is sent twice."""

    def cancel(self, error: StagemeshError) -> list[Action]:
        actions = super().cancel(error)
        return actions + [action for action in actions if isinstance(action, SendCancel)]


class CancelsNobody(RequestMachine):
    """A request that ends is not cancelled where it is held."""

    def cancel(self, error: StagemeshError) -> list[Action]:
        actions = super().cancel(error)
        return [action for action in actions if not isinstance(action, SendCancel)]


class FreesEarly(RequestMachine):
    """A slot is freed when the cancel is sent, not when it is acknowledged."""

    def cancel(self, error: StagemeshError) -> list[Action]:
        actions = super().cancel(error)
        freed = [Release(stage=stage) for stage in self._owing] if actions else []
        if freed:
            self._owing = {}
        return [*actions, *freed]


class EndsEarly(RequestMachine):
    """A request ends well with its first stage that finishes."""

    def finished(self, stage: int) -> list[Action]:
        actions = super().finished(stage)
        return [*actions, self._end(None)] if actions and self._running else actions


class ForgetsDeath(Bindings):
    """What was bound to a replica that died is never released."""

    def release(self, request: str) -> None:
        bound = self._bound.get(request)
        if bound is None or not bound.lost:
            super().release(request)


class Unsticky(Bindings):
    """A bound request is routed again whenever it is looked up."""

    def bind(
        self,
        request: str,
        key: str = "",
        cost: int = 1,
        parent: str | None = None,
        at: int | None = None,
    ) -> int | Unroutable:
        self._bound.pop(request, None)
        return super().bind(request, key, cost, parent, at)


class Orphans(Bindings):
    """A companion goes anywhere."""

    def bind(
        self,
        request: str,
        key: str = "",
        cost: int = 1,
        parent: str | None = None,
        at: int | None = None,
    ) -> int | Unroutable:
        return super().bind(request, key, cost, None if parent else parent, at)


class GoesItsOwnWay(Units):
    """A stage that shares a process is bound to a replica of its own choice."""

    def bound(self, stage: int, route: Mapping[int, int]) -> int | None:  # noqa: ARG002
        return None


class TakesHalves(Units):
    """A process takes requests although one of its stages is gone."""

    def joined(self, stage: int, replica: int) -> tuple[int, ...]:
        super().joined(stage, replica)
        return self.mates(stage)

    def gone(self, stage: int, replica: int) -> tuple[int, ...]:
        super().gone(stage, replica)
        return (stage,)


class FollowsTheDead(Bindings):
    """A companion follows its parent to a replica that is gone."""

    def lose(self, replica: int) -> None:
        """Nobody is told."""


class TrustsTheDead(Router):
    """A replica that is gone may still be chosen."""

    def leave(self, replica: int) -> None:
        """It stays."""


class Overfull(Admission):
    """Everybody is taken on."""

    @property
    def limit(self) -> int | None:
        return None


class Impatient(Admission):
    """Everybody is sent at once."""

    def join(self, replica: int, slots: int, window: int | None = None) -> None:  # noqa: ARG002
        super().join(replica, slots, None)


class Abandons(Admission):
    """Who waited for a replica that is gone waits on."""

    def leave(self, replica: int) -> tuple[str, ...]:
        super().leave(replica)
        return ()


class LosesPlaces(Admission):
    """A place that becomes free is given to nobody."""

    def served(self, request: str, now: float) -> tuple[str, ...]:
        super().served(request, now)
        return ()


class IgnoresEpochs(Dispatcher):
    """What is heard of an earlier request of that name counts."""

    def _entry(self, name: str, epoch: int) -> Entry | None:  # noqa: ARG002
        return self._entries.get(name)


class IgnoresDeadlines(Dispatcher):
    """No deadline ever passes."""

    def tick(self, now: float) -> list[Outgoing]:  # noqa: ARG002
        return []


class NumbersEarly(Dispatcher):
    """Requests are numbered when they come, not when they begin."""

    def open(self, ask: Ask, now: float) -> list[Outgoing]:
        self._numbers = {**self.__dict__.get("_numbers", {}), ask.name: now}
        return super().open(ask, now)

    def _begin(self, entry: Entry, now: float) -> list[Outgoing]:
        self._epoch = int(1000 * self._numbers[entry.ask.name])
        return super()._begin(entry, now)


class NumbersByEpoch(Dispatcher):
    """Further stages are told as if that had been when the request began."""

    def whole(self, name: str, epoch: int, stage: int, now: float) -> list[Outgoing]:
        actions = super().whole(name, epoch, stage, now)
        return [replace(one, turn=epoch) if isinstance(one, Enter) else one for one in actions]


class ChoosesAtOnce(Routes):
    """The whole route is chosen when a request begins."""

    def __init__(
        self, stages: Sequence[StageShape], bindings: Mapping[int, Bindings], units: Units
    ) -> None:
        loose = [replace(shape, whole_to=()) for shape in stages]
        super().__init__(loose, bindings, units)


class ParentsAlone(Routes):
    """A companion is not bound where its parent comes to, nor its parent where it comes to."""

    def bind_late(self, entry: Entry, stage: int) -> int:
        return self.bind(entry, stage, None)


class KeepsReserved(Routes):
    """What a request was to come to stays counted after its end."""

    def unbind(self, entry: Entry) -> None:
        """Nothing is forgotten."""


class IgnoresIncarnations(Membership):
    """What is heard of a process that was replaced counts for its successor."""

    def ended(self, replica: int, incarnation: int, now: float) -> list[Change]:  # noqa: ARG002
        member = self._members[replica]
        return super().ended(replica, member.incarnation, now)


def parts(**given: type) -> Rules:
    """Rules with other parts of the dispatcher."""
    return Rules(parts=Parts(**given))


MUTANTS: Final[Mapping[str, Rules]] = {
    "a dropped stream keeps its credit": Rules(inflow=KeepsCredit),
    "credit is given twice": Rules(inflow=GrantsTwice),
    "the window of a stream is not kept": Rules(outflow=WideStream),
    "the budget of an edge is not kept": Rules(outflow=WideEdge),
    "the oldest stream has no right of way": Rules(outflow=OldestWaits),
    "a closed stream keeps a waiting chunk": Rules(outflow=LeavesItsChunk),
    "a window of stage_pp is not kept": Rules(outflow=NoStageWindow),
    "a window of stage_pp keeps no place": Rules(outflow=KeepsNoPlace),
    "a request ends twice": parts(request=EndsTwice),
    "a cancel is sent twice": parts(request=CancelsTwice),
    "a cancel is not sent": parts(request=CancelsNobody),
    "a slot is freed before it is acknowledged": parts(request=FreesEarly),
    "a request ends with its first stage": parts(request=EndsEarly),
    "counts are kept when a replica dies": parts(bindings=ForgetsDeath),
    "a binding is lost": parts(bindings=Unsticky),
    "a companion goes its own way": parts(bindings=Orphans),
    "a companion follows to a dead replica": parts(bindings=FollowsTheDead),
    "a stage in the process of another goes its own way": parts(units=GoesItsOwnWay),
    "a process takes requests with half of its stages": parts(units=TakesHalves),
    "a dead replica is chosen": parts(router=TrustsTheDead),
    "the admission limit is not kept": parts(admission=Overfull),
    "the window of a replica is not kept": parts(admission=Impatient),
    "the queue of a dead replica is forgotten": parts(admission=Abandons),
    "a free place is given to nobody": parts(admission=LosesPlaces),
    "epochs are ignored": Rules(dispatcher=IgnoresEpochs),
    "deadlines are ignored": Rules(dispatcher=IgnoresDeadlines),
    "epochs are given too early": Rules(dispatcher=NumbersEarly),
    "further stages are told by the epoch": Rules(dispatcher=NumbersByEpoch),
    "the whole route is chosen at once": parts(routes=ChoosesAtOnce),
    "a companion comes to another replica": parts(routes=ParentsAlone),
    "a stage that is not come to stays counted": parts(routes=KeepsReserved),
    "incarnations are ignored": Rules(membership=IgnoresIncarnations),
}


def first_caught(rules: Rules, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed whose history breaks a rule, and which."""
    for seed in seeds:
        outcome = simulate(seed, rules)
        if outcome.violation is not None:
            return seed, outcome.violation
    return None
