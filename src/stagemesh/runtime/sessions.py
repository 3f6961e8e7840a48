"""The full-duplex sessions of a running system: tells stages of them, and hears what they say.

Where each session goes, and what it holds, is decided by `core/duplex`; this is the shell around
it. A session is open when every stage has taken it. However it ends, its turns are cancelled first
and then each of its replicas is told: the place is free when all of them have cleaned up, or are
gone, which is the same. A stage that fails to clean up is asked again every `reaper_interval_s`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    InvalidRequestError,
    SessionModeError,
    SessionRefusedError,
    StageFailedError,
    StagemeshError,
)
from stagemesh.plan.sessions import DuplexPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.alarm import Alarm
from stagemesh.runtime.calls import Calls
from stagemesh.runtime.core.actions import SessionRoute
from stagemesh.runtime.core.duplex import SessionRefusal, Sessions, SessionState
from stagemesh.runtime.messages import Message, ProtocolError
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Call, Running
from stagemesh.runtime.session import Session, SessionCounts, SessionEnd, SessionOver
from stagemesh.runtime.session_messages import (
    CloseSession,
    OpenSession,
    SessionClosed,
    SessionOpened,
)

_EXHAUSTED: Final = "resource_exhausted"
_BACKPRESSURE: Final = "input_backpressure"


Choose: TypeAlias = Callable[[str], Mapping[int, int]]
"""Chooses a replica of every stage for a session without a group."""


class Post(Protocol):
    """Whoever has the requests and streams of the system."""

    def tell(self, where: ReplicaId, message: Message) -> bool:
        """Send to a replica; whether there is one."""
        ...

    def open(self, call: Call) -> Running:
        """Take a request on."""
        ...

    def end(self, name: str, error: StagemeshError) -> None:
        """End a request."""
        ...


@dataclass(eq=False, slots=True, kw_only=True)
class _Held:
    """A session that holds a place."""

    session: Session
    route: SessionRoute
    places: tuple[ReplicaId, ...]
    opened: asyncio.Future[None]
    awaited: set[ReplicaId]
    """Replicas that have not said that they have opened it, or closed it."""
    unclean: set[ReplicaId] = field(default_factory=set)
    """Those that could not close it, and are asked again."""
    is_absent: bool = False
    turns: dict[str, int] = field(default_factory=dict)
    """Turns that are not settled, in order: bytes that wait to be computed, 0 once they do not."""


class SessionDesk:
    """All sessions of one frontend."""

    def __init__(
        self, plan: Plan, duplex: DuplexPlan, frontend: int, post: Post, choose: Choose
    ) -> None:
        """Begin without sessions."""
        self._names: Final = {stage.stage_id: stage.name for stage in plan.stages}
        self._positions = {stage.stage_id: index for index, stage in enumerate(plan.stages)}
        self._plan: Final = duplex
        self._post = post
        self._choose = choose
        self._core: Final = Sessions(duplex, frontend)
        self._loop = asyncio.get_running_loop()
        self._reaper = Alarm(self._reap)
        self._held: dict[str, _Held] = {}
        self._numbers = itertools.count()
        self._num_opened = 0
        self._refused: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._closed = False

    @property
    def counts(self) -> SessionCounts:
        """Count them."""
        there = Counter(state.value for state in self._core.states.values())
        return SessionCounts(
            states={state.value: there[state.value] for state in SessionState},
            opened=self._num_opened,
            refused=dict(self._refused),
            ended=dict(self._ended),
        )

    @property
    def core(self) -> Sessions:
        """Where they are."""
        return self._core

    async def open(self, calls: Calls, timeout_s: float | None) -> Session:
        """Open a session; who stops waiting closes it.

        Raises `SessionRefusedError` when there is no place, `StageFailedError` when a stage does
        not take it, and `DeadlineError` when they do not do so in time.
        """
        held = self._begin(calls)
        name = held.session.name
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(held.opened)
        except TimeoutError as late:
            error = DeadlineError(f"session not opened after {timeout_s:g} s")
            self.close(name, SessionEnd(over=SessionOver.FAILED, error=error))
            raise error from late
        except asyncio.CancelledError:
            held.session.close()
            raise
        return held.session

    def submit(self, name: str, call: Call) -> Running:
        """Start a turn of a session that is open, behind those that there are."""
        held = self._held[name]
        if call.request_id in held.turns:
            raise InvalidRequestError(f"request `{call.request_id}` is still running")
        size = call.prompt.weight
        self._check_room(held, size)
        self._core.heard(name, self._loop.time())
        held.turns[call.request_id] = size
        try:
            return self._post.open(replace(call, session=held.route))
        except BaseException:
            held.turns.pop(call.request_id, None)
            raise

    def present(self, name: str, *, is_here: bool) -> None:
        """The user of a session is there, or his connection has ended."""
        held = self._held.get(name)
        if held is not None:
            held.is_absent = not is_here
            note = self._core.heard if is_here else self._core.disconnected
            note(name, self._loop.time())

    def close(self, name: str, end: SessionEnd) -> None:
        """A session is over; one that is already stays as it is."""
        if self._core.close(name):
            self._over(name, end)

    def close_all(self) -> None:
        """The system is closed: nobody waits for anything any more."""
        self._closed = True
        error = ClosedError("the system was closed while the session was open")
        for name in list(self._held):
            self.close(name, SessionEnd(over=SessionOver.SHUTDOWN, error=error))
        for held in list(self._held.values()):
            self._free(held)

    # --- what is heard of turns and replicas ---------------------------------------------------

    def check(self, call: Call) -> None:
        """Raise `SessionModeError` for a request outside of sessions."""
        if call.session is None:
            raise SessionModeError("requests are turns of sessions here: open one first")

    def begun(self, call: Call) -> None:
        """A turn waits no more."""
        if (held := self._of(call)) is not None:
            held.turns[call.request_id] = 0

    def settled(self, call: Call) -> None:
        """No replica holds a turn any more."""
        if (held := self._of(call)) is not None:
            held.turns.pop(call.request_id, None)
            self._core.busy(held.session.name, self._loop.time())

    def joined(self, where: ReplicaId) -> None:
        """A replica takes sessions."""
        self._core.joined(*self._place(where))

    def held(self, where: ReplicaId) -> None:
        """A replica takes no further sessions."""
        self._core.held(*self._place(where))

    def died(self, where: ReplicaId, reason: str) -> None:
        """A replica is gone: its sessions are over, and it has nothing left to clean up."""
        error = StageFailedError(
            reason, stage=self._names[where.stage], replica=where.replica, retryable=True
        )
        for name in self._core.died(*self._place(where)):
            self._over(name, SessionEnd(over=SessionOver.FAILED, error=error))
        for held in list(self._held.values()):
            if where in held.places:
                self._clean(held, where)

    def answered(self, where: ReplicaId, answer: SessionOpened | SessionClosed) -> None:
        """A replica has opened a session or closed it, or could not."""
        held = self._held.get(answer.session)
        if held is None or where not in held.places:
            raise ProtocolError("a stage speaks of a session that it does not hold")
        is_closing = held.session.end is not None
        if isinstance(answer, SessionClosed):
            if not is_closing:
                raise ProtocolError("a stage has closed a session that is not over")
            if answer.fault is None:
                self._clean(held, where)
            else:
                held.unclean.add(where)
        elif not is_closing:
            self._taken(held, where, answer.fault)

    # --- how -----------------------------------------------------------------------------------

    def _of(self, call: Call) -> _Held | None:
        """The session of a turn, while it holds a place."""
        return None if call.session is None else self._held.get(call.session.name)

    def _begin(self, calls: Calls) -> _Held:
        """Take a place, and tell every stage."""
        name, now = f"session-{next(self._numbers)}", self._loop.time()
        if self._closed:
            raise ClosedError("the system is closed")
        placed = self._core.open(name, now)
        if isinstance(placed, SessionRefusal):
            raise self._refusal(placed.message, placed.code)
        stages = {position: stage for stage, position in self._positions.items()}
        route = {stages[position]: replica for position, replica in placed.replicas.items()}
        if placed.group is None:
            try:
                route = dict(self._choose(name))
            except StagemeshError:
                self._core.rolled_back(name)
                raise
            self._core.seated(name, {self._positions[one]: route[one] for one in route})
        places = tuple(ReplicaId(stage=stage, replica=route[stage]) for stage in route)
        session = Session(name, placed.group, self, calls)
        session.replicas = {self._names[stage]: replica for stage, replica in route.items()}
        held = self._held[name] = _Held(
            session=session,
            route=SessionRoute(name=name, route=route),
            places=places,
            opened=self._loop.create_future(),
            awaited=set(places),
        )
        for where in places:
            self._post.tell(where, OpenSession(session=name))
        self._watch()
        return held

    def _taken(self, held: _Held, where: ReplicaId, fault: str | None) -> None:
        held.awaited.discard(where)
        name = held.session.name
        if fault is not None:
            error = StageFailedError(
                f"{self._seat(where)} cannot open a session: {fault}",
                stage=self._names[where.stage],
                replica=where.replica,
                retryable=True,
            )
            self.close(name, SessionEnd(over=SessionOver.FAILED, error=error))
        elif not held.awaited and self._core.opened(name, self._loop.time()):
            self._num_opened += 1
            held.opened.set_result(None)

    def _over(self, name: str, end: SessionEnd) -> None:
        """A session is closing: cancel its turns, the last ones first, and tell its replicas."""
        held = self._held[name]
        self._ended[end.over.value] += 1
        held.session.over(end)
        for turn in reversed(list(held.turns)):
            self._post.end(turn, end.error)
        if not held.opened.done():
            held.opened.set_exception(end.error)
            held.opened.exception()  # who waits has it; it may be that nobody does any more
        asked = CloseSession(session=name)
        held.awaited = {where for where in held.places if self._post.tell(where, asked)}
        self._free_if_clean(held)

    def _clean(self, held: _Held, where: ReplicaId) -> None:
        held.awaited.discard(where)
        held.unclean.discard(where)
        self._free_if_clean(held)

    def _free_if_clean(self, held: _Held) -> None:
        if not held.awaited:
            self._free(held)

    def _free(self, held: _Held) -> None:
        name = held.session.name
        if self._held.pop(name, None) is not None:
            self._core.cleaned(name)
            held.session.gone()
            self._watch()

    def _check_room(self, held: _Held, size: int) -> None:
        """Raise when more waits to be computed than may."""
        most_bytes = self._plan.max_pending_input_bytes_per_session
        most_turns = self._plan.max_pending_turns_per_session
        if size > most_bytes:
            told = f"a turn of `{size}` bytes is longer than the `{most_bytes}` that may wait"
            raise InvalidRequestError(told)
        waiting = [each for each in held.turns.values() if each]
        if len(waiting) >= most_turns:
            told = f"`{len(waiting)}` turns wait to be computed, at most `{most_turns}` may"
        elif sum(waiting) + size > most_bytes:
            told = f"`{sum(waiting)}` bytes wait to be computed, at most `{most_bytes}` may"
        else:
            return
        raise self._refusal(f"{_BACKPRESSURE}: {told}", _BACKPRESSURE)

    def _refusal(self, message: str, reason: str) -> SessionRefusedError:
        self._refused[reason] += 1
        return SessionRefusedError(message, reason=reason)

    def _reap(self) -> None:
        """Close sessions that are over, and ask again who could not clean up."""
        now = self._loop.time()
        for name, held in self._held.items():
            if held.turns:
                self._core.busy(name, now)
        for name in self._core.reap(now):
            self._over(name, self._end_of_silence(self._held[name]))
        for name in self._core.closing:
            held = self._held[name]
            unclean, held.unclean = held.unclean, set()
            for where in unclean:
                self._post.tell(where, CloseSession(session=name))
        self._watch()

    def _end_of_silence(self, held: _Held) -> SessionEnd:
        if held.is_absent:
            told = f"the session was left for {self._plan.disconnect_grace_s:g} s"
            return SessionEnd(over=SessionOver.DISCONNECTED, error=ClosedError(told))
        told = f"the session was idle for {self._plan.idle_ttl_s:g} s"
        return SessionEnd(over=SessionOver.IDLE, error=ClosedError(told))

    def _watch(self) -> None:
        """Look again after the interval, while there are sessions."""
        if not self._held:
            self._reaper.set(None)
        elif not self._reaper.is_set:
            self._reaper.set(self._loop.time() + self._plan.reaper_interval_s)

    def _place(self, where: ReplicaId) -> tuple[int, int]:
        return self._positions[where.stage], where.replica

    def _seat(self, where: ReplicaId) -> str:
        return f"stage `{self._names[where.stage]}` replica `{where.replica}`"
