"""The dispatcher: every request of one caller, from admission until no replica holds it.

It puts the machines of this room together: admission, one router and its bindings per stage, one
machine per request, and deadlines. A shell tells it what has happened and carries out the actions
that come back, in order; so does the simulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stagemesh.errors import (
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    StageFailedError,
    StagemeshError,
)
from stagemesh.runtime.core import request as life
from stagemesh.runtime.core.actions import (
    Action,
    Ask,
    Begin,
    Cancel,
    Ended,
    Enter,
    SessionRoute,
    Settled,
    StageShape,
)
from stagemesh.runtime.core.admission import Admission, Deadlines
from stagemesh.runtime.core.request import RequestMachine
from stagemesh.runtime.core.router import Bindings, Router
from stagemesh.runtime.core.routes import Entry, Routes
from stagemesh.runtime.core.turns import Turns
from stagemesh.runtime.core.units import Units
from stagemesh.spec.frozen import frozen


@frozen
class Parts:
    """The machines that a dispatcher is made of; the simulator puts broken ones in their place."""

    router: type[Router] = Router
    bindings: type[Bindings] = Bindings
    admission: type[Admission] = Admission
    request: type[RequestMachine] = RequestMachine
    routes: type[Routes] = Routes
    units: type[Units] = Units


class Dispatcher:
    """All requests of one caller. Whoever breaks a rule of a message is the replica, never us."""

    def __init__(
        self,
        stages: Sequence[StageShape],
        *,
        queue_limit: int | None = None,
        parts: Parts | None = None,
    ) -> None:
        """Begin without replicas; take on `queue_limit` requests beyond the entry's slots."""
        self._parts: Final = parts or Parts()
        self._stages: Final = {shape.stage: shape for shape in stages}
        self._finals: Final = tuple(shape.stage for shape in stages if shape.is_final)
        self.gate: Final = next(shape.stage for shape in stages if shape.is_entry)
        self.bindings: Final = {
            shape.stage: self._parts.bindings(self._parts.router(shape.routing)) for shape in stages
        }
        self.admission: Final = self._parts.admission(queue_limit)
        units = self._parts.units(stages)
        self._routes: Final = self._parts.routes(stages, self.bindings, units)
        self._waves: Final = self._routes.waves
        self._deadlines = Deadlines()
        self._entries: dict[str, Entry] = {}
        self._followers: dict[str, list[str]] = {}
        self._ready: deque[str] = deque()
        self._gone: set[tuple[int, int]] = set()
        self.turns: Final = Turns()
        self._epoch = 0
        self._rooms: dict[int, tuple[int, int | None]] = {}
        """Slots and window of every replica of the entry."""

    # --- what is asked -------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Requests that are not settled, in the order in which they came."""
        return tuple(self._entries)

    @property
    def next_deadline(self) -> float | None:
        """When `tick` has something to do next."""
        return self._deadlines.next

    def find(self, name: str, epoch: int) -> RequestMachine | None:
        """The machine of a request that began as that epoch, unless it is settled."""
        entry = self._entry(name, epoch)
        return None if entry is None else entry.machine

    def machine(self, name: str) -> RequestMachine | None:
        """The machine of a request by its name alone, for its user."""
        entry = self._entries.get(name)
        return None if entry is None else entry.machine

    def route(self, name: str) -> Mapping[int, int]:
        """The replica of every stage that a request is bound to."""
        entry = self._entries.get(name)
        return {} if entry is None else entry.route

    def choose(self, name: str) -> Mapping[int, int]:
        """Choose a replica of every stage for a session; `StageFailedError` where there is none."""
        return {stage: self._routes.choose(stage, name) for stage in self.bindings}

    # --- replicas ------------------------------------------------------------------------------

    def joined(
        self, stage: int, replica: int, slots: int = 1, window: int | None = None
    ) -> list[Action]:
        """A replica takes requests from now on, at most `window` at a time where they enter.

        One that shares its process does so when all in it do.
        """
        self._gone.discard((stage, replica))
        if stage == self.gate:
            self._rooms[replica] = slots, window
        self.resumed(stage, replica)
        return []

    def retired(self, stage: int, replica: int, now: float) -> list[Action]:
        """A replica takes nothing new, nor does any in its process; what it was sent goes on there.

        Who waited for it goes elsewhere, or waits on where there is nobody else. So does who was
        taken on before, and comes to that stage later.
        """
        if self.gate not in self._routes.retired(stage, replica):
            return []
        self.admission.retire(replica)
        has_other = self.bindings[self.gate].router.has_eligible
        moved = self.admission.unqueue(replica) if has_other else ()
        return self._drained(self._move(moved, now), now)

    def resumed(self, stage: int, replica: int) -> None:
        """A replica that took nothing new does again."""
        if self.gate in self._routes.joined(stage, replica):
            if not self.admission.has(replica):
                self.admission.join(replica, *self._rooms[replica])
            self.admission.retire(replica, retired=False)

    def left(self, stage: int, replica: int, reason: str, now: float) -> list[Action]:
        """A replica is gone: what its process held fails, and who waited for it goes elsewhere."""
        mates = self._routes.left(stage, replica)
        self._gone.add((stage, replica))
        actions = self._strand(stage, replica, reason, now)
        moved = self.admission.leave(replica) if self.gate in mates else ()
        actions += self._move(moved, now)
        for entry in list(self._entries.values()):
            if entry.machine.begun and replica in map(entry.route.get, mates):
                actions += self._failed(entry, stage, reason, now)
        return self._drained(actions, now)

    # --- requests ------------------------------------------------------------------------------

    def open(self, ask: Ask, now: float) -> list[Action]:
        """Take a request on; it begins now, or when there is room.

        Raises `InvalidRequestError` for a name in use or a parent that does not run,
        `OverloadedError` when there is no room, and `StageFailedError` without a replica.
        """
        if ask.name in self._entries:
            raise InvalidRequestError(f"request `{ask.name}` is still running")
        for stage in self.bindings:  # all of them: a stage that nobody serves is told of at once
            self._require(stage, ask.session)
        refusal = self.admission.admit(ask.name)
        if refusal is not None:
            raise OverloadedError(
                f"`{refusal.in_flight}` requests run or wait, at most `{refusal.limit}` may",
                retry_after_s=refusal.retry_after_s,
            )
        parent = self._entries.get(ask.parent or "")
        entry = Entry(ask, self._parts.request(self._finals), parent)
        try:
            replica = self._routes.bind(entry, self.gate, ask.parent)
            self._follow(entry)
        except StagemeshError:
            self._forget(ask.name)
            raise
        self._entries[ask.name] = entry.family[ask.name] = entry
        if ask.timeout_s is not None:
            self._deadlines.set(ask.name, now + ask.timeout_s)
        is_next = ask.session is None or self.turns.came(ask.session.name, ask.name)
        if is_next and self.admission.place(ask.name, replica, now):
            self._ready.append(ask.name)
        return self._drained([], now)

    def output(self, name: str, epoch: int, stage: int, seq: int, *, last: bool) -> str | None:
        """A final stage has put something out; what is wrong with that, if anything is.

        Whether it goes to the user is `RequestMachine.running`.
        """
        machine = self.find(name, epoch)
        return None if machine is None else machine.output(stage, seq, last=last)

    def whole(self, name: str, epoch: int, stage: int, now: float) -> list[Action]:
        """A stage has all that it hands over whole: who takes it is chosen by the counts of now."""
        entry = self._entry(name, epoch)
        if entry is None or not entry.machine.running:
            return []
        coming = [each for each in self._waves.after(stage) if each in entry.machine.coming]
        try:
            route = {each: self._routes.bind_late(entry, each) for each in coming}
        except StagemeshError as error:
            return self._drained(self._act(entry, entry.machine.cancel(error), now), now)
        if not route:
            return []  # another stage that feeds the same ones has ended before
        self._epoch += 1
        entry.machine.enter(route)
        return [Enter(name=name, turn=self._epoch, route=route)]

    def finished(self, name: str, epoch: int, stage: int, now: float) -> list[Action]:
        """A stage has finished."""
        entry = self._entry(name, epoch)
        if entry is None:
            return []
        if entry.machine.running and entry.machine.lacks(stage):
            told = f"{self._where(entry, stage)} finished without its last output"
            return self._drained(self._failed(entry, stage, told, now), now)
        if entry.machine.running and set(entry.machine.coming) & set(self._waves.after(stage)):
            told = f"{self._where(entry, stage)} finished without handing over its output"
            return self._drained(self._failed(entry, stage, told, now), now)
        return self._drained(self._act(entry, entry.machine.finished(stage), now), now)

    def failed(
        self, name: str, epoch: int, stage: int, error: str | StagemeshError, now: float
    ) -> list[Action]:
        """A stage has failed a request, or has forgotten it as it was told to."""
        entry = self._entry(name, epoch)
        if entry is None:
            return []
        return self._drained(self._failed(entry, stage, error, now), now)

    def leave(self, name: str, error: StagemeshError, now: float) -> list[Action]:
        """End a request because of `error`; one that has ended already stays as it is."""
        entry = self._entries.get(name)
        if entry is None:
            return []
        return self._drained(self._act(entry, entry.machine.cancel(error), now), now)

    def tick(self, now: float) -> list[Action]:
        """End every request whose deadline has come; the first stage that owes is named."""
        actions: list[Action] = []
        for name in self._deadlines.due(now):
            entry = self._entries[name]
            stage = next(iter(entry.machine.owing), self.gate)
            told = f"request `{name}` not done after {entry.ask.timeout_s:g} s"
            told += f" by {self._where(entry, stage)}"
            error = DeadlineError(
                told, stage=self._stages[stage].name, replica=entry.route.get(stage)
            )
            actions += self._act(entry, entry.machine.cancel(error), now)
        return self._drained(actions, now)

    # --- how -----------------------------------------------------------------------------------

    def _entry(self, name: str, epoch: int) -> Entry | None:
        """What is heard of another epoch is about a request that is gone."""
        entry = self._entries.get(name)
        return entry if entry is not None and entry.machine.epoch == epoch else None

    def _where(self, entry: Entry, stage: int) -> str:
        return f"stage `{self._stages[stage].name}` replica `{entry.route.get(stage)}`"

    def _require(self, stage: int, session: SessionRoute | None) -> None:
        """Raise where nobody could serve a request; a turn is served at one place alone."""
        where = None if session is None else (stage, session.route[stage])
        if where is None or where in self._gone:
            self._routes.require(stage, is_gone=where is not None)

    def _strand(self, stage: int, replica: int, reason: str, now: float) -> list[Action]:
        """Fail turns that would have come to a replica that is gone, the last ones first."""
        actions: list[Action] = []
        for entry in reversed(list(self._entries.values())):
            session, is_bound = entry.ask.session, entry.machine.begun and stage in entry.route
            if session is not None and session.route[stage] == replica and not is_bound:
                error = self._stage_error(entry, stage, reason)
                actions += self._act(entry, entry.machine.cancel(error), now, stage)
        return actions

    def _follow(self, entry: Entry) -> None:
        """Bind a companion wherever its parent is, as soon as that is: it may go before."""
        parent = self._entries.get(entry.ask.parent or "")
        if parent is not None and parent.machine.begun:
            self._routes.follow(entry)
        elif parent is not None:
            self._followers.setdefault(parent.ask.name, []).append(entry.ask.name)

    def _begin(self, entry: Entry, now: float) -> list[Action]:
        """Bind it to the first stages and tell them, now that there is room."""
        try:
            route = self._routes.bind_first(entry)
        except StagemeshError as error:
            return self._act(entry, entry.machine.cancel(error), now)
        self._epoch += 1
        entry.machine.begin(self._epoch, route, self._waves.later)
        actions: list[Action] = [Begin(name=entry.ask.name, epoch=self._epoch, route=route)]
        for name in self._followers.pop(entry.ask.name, ()):
            follower = self._entries.get(name)
            if follower is not None and follower.machine.running:
                try:
                    self._routes.bind_first(follower)
                except StagemeshError as error:
                    actions += self._act(follower, follower.machine.cancel(error), now)
        return actions

    def _drained(self, actions: list[Action], now: float) -> list[Action]:
        """Begin whom there is room for now, which may make room for others."""
        while self._ready:
            entry = self._entries.get(self._ready.popleft())
            if entry is not None and entry.machine.running:
                actions += self._begin(entry, now)
        return actions

    def _move(self, names: Sequence[str], now: float) -> list[Action]:
        """Give those who waited for a replica another one; they have not begun."""
        actions: list[Action] = []
        for name in names:
            entry = self._entries[name]
            self.bindings[self.gate].forget(name)
            try:
                replica = self._routes.bind(entry, self.gate, entry.ask.parent)
            except StagemeshError as error:
                actions += self._act(entry, entry.machine.cancel(error), now)
                continue
            if self.admission.place(name, replica, now):
                self._ready.append(name)
        return actions

    def _failed(
        self, entry: Entry, stage: int, error: str | StagemeshError, now: float
    ) -> list[Action]:
        if isinstance(error, str):
            error = self._stage_error(entry, stage, error)
        where = None if stage in entry.machine.coming else stage
        return self._act(entry, entry.machine.failed(stage, error), now, where)

    def _stage_error(self, entry: Entry, stage: int, told: str) -> StageFailedError:
        return StageFailedError(
            told,
            stage=self._stages[stage].name,
            replica=entry.route.get(stage),
            retryable=not entry.machine.has_output,
        )

    def _act(
        self,
        entry: Entry,
        events: Iterable[life.Action],
        now: float,
        stage: int | None = None,
    ) -> list[Action]:
        """Free what a request's machine lets go of, and say what the shell has to do."""
        name = entry.ask.name
        actions: list[Action] = []
        for event in events:
            match event:
                case life.Release():
                    self.bindings[event.stage].release(name)
                    if event.stage == self.gate:
                        self._ready.extend(self.admission.served(name, now))
                case life.SendCancel():
                    replica = entry.route[event.stage]
                    actions.append(Cancel(name=name, stage=event.stage, replica=replica))
                case life.End():
                    self._deadlines.clear(name)
                    self._routes.unbind(entry)
                    actions.append(Ended(name=name, error=event.error, stage=stage))
        if entry.machine.settled and self._entries.get(name) is entry:
            del self._entries[name]
            del entry.family[name]
            self._ready.extend(self.admission.served(name, now))
            self._forget(name)
            self._next_turn(entry.ask, now)
            actions.append(Settled(name=name))
        return actions

    def _next_turn(self, ask: Ask, now: float) -> None:
        """A request is settled: where it was a turn, the one behind it goes to its replica."""
        if ask.session is not None:
            turn = self.turns.over(ask.session.name, ask.name)
            replica = ask.session.route[self.gate]
            if turn is not None and self.admission.place(turn, replica, now):
                self._ready.append(turn)

    def _forget(self, name: str) -> None:
        self.admission.gone(name)
        self._followers.pop(name, None)
        for bindings in self.bindings.values():
            bindings.forget(name)
