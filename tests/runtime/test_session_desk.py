"""The sessions of a running system against a plain account of them, in any order of events.

Stages are stood in for: what each of them was told lies in a queue, and is answered when it is its
turn, by what it holds. So every interleaving of several stages, clients and deaths may happen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stagemesh.errors import ClosedError, SessionRefusedError, StageFailedError, StagemeshError
from stagemesh.runtime.calls import Calls
from stagemesh.runtime.core.duplex import SessionState
from stagemesh.runtime.messages import (
    Message,
    ProtocolError,
)
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Call, Running
from stagemesh.runtime.session import Session
from stagemesh.runtime.session_messages import (
    CloseSession,
    OpenSession,
)
from stagemesh.runtime.session_messages import (
    SessionClosed as Closed,
)
from stagemesh.runtime.session_messages import (
    SessionOpened as Opened,
)
from stagemesh.runtime.sessions import SessionDesk
from stagemesh.spec.payload import Payload
from tests.runtime.talking import duplex_plan, talking

GROUPS = [(0, 0), (1, 0), (1, 1)]
CAP, MOST = 2, 5
PLACES = [ReplicaId(stage=0, replica=0), ReplicaId(stage=0, replica=1)]
PLACES += [ReplicaId(stage=1, replica=0), ReplicaId(stage=1, replica=1)]


class Stages:
    """Stages and requests as the desk sees them."""

    def __init__(self) -> None:
        """All replicas are there, and hold nothing."""
        self.mail: dict[ReplicaId, deque[Message]] = {where: deque() for where in PLACES}
        self.holds: dict[ReplicaId, set[str]] = {where: set() for where in PLACES}
        self.turns: dict[str, Call] = {}
        self.began: list[str] = []

    def tell(self, where: ReplicaId, message: Message) -> bool:
        """Keep it until its turn, if there is such a replica."""
        if where in self.mail:
            self.mail[where].append(message)
        return where in self.mail

    def open(self, call: Call) -> Running:
        """Take a turn on."""
        self.turns[call.request_id] = call
        return cast("Running", None)

    def end(self, name: str, error: StagemeshError) -> None:
        """Forget a turn."""
        assert isinstance(error, StagemeshError)
        self.turns.pop(name)


class AnyDesk(RuleBasedStateMachine):
    """Clients, stages and deaths in any order."""

    @initialize()
    def begin(self) -> None:
        """Make the desk, on a loop that runs only between two events."""
        self.runner = asyncio.Runner()
        self.stages = Stages()
        duplex = duplex_plan(GROUPS, cap=CAP, sessions=MOST, max_pending_turns_per_session=2)
        plan = talking(duplex, (2, 2))

        async def make() -> SessionDesk:
            return SessionDesk(plan, duplex, 0, self.stages, lambda _: {})

        self.desk = self.runner.run(make())
        self.opening: list[asyncio.Task[Session]] = []
        self.open: list[Session] = []
        self.number = 0

    def teardown(self) -> None:
        """Close the system: nobody waits any more, and every place is free."""
        try:
            self.run(self.desk.close_all)
            assert not self.opening
            assert not self.desk.core.states
            assert set(self.desk.core.reserved.values()) == {0}
        finally:
            self.runner.close()

    def run(self, work: object, *args: object) -> None:
        """Do something on the loop, and let what follows from it happen."""

        async def all_of_it() -> None:
            work(*args)  # type: ignore[operator]  # any function of the desk
            for _ in range(4):
                await asyncio.sleep(0)

        self.runner.run(all_of_it())
        for task in [task for task in self.opening if task.done()]:
            self.opening.remove(task)
            if task.cancelled() or (error := task.exception()) is None:
                self.open += [] if task.cancelled() else [task.result()]
            else:
                expected = SessionRefusedError | StageFailedError | ClosedError
                assert isinstance(error, expected)

    @rule()
    def opens(self) -> None:
        """A client wants a session; it is refused only where no group has room."""
        reserved, states = dict(self.desk.core.reserved), self.desk.core.states

        def begin() -> None:
            work = self.desk.open(cast("Calls", None), None)
            self.opening.append(asyncio.get_running_loop().create_task(work))

        refused = self.desk.counts.refused.get("resource_exhausted", 0)
        self.run(begin)
        fits = len(states) < MOST and any(
            all(
                where in self.stages.mail and reserved[where.stage, where.replica] < CAP
                for where in (ReplicaId(stage=stage, replica=one) for stage, one in enumerate(each))
            )
            for each in GROUPS
        )
        assert (self.desk.counts.refused.get("resource_exhausted", 0) == refused) == fits

    @precondition(lambda self: self.opening)
    @rule(data=st.data())
    def stops_waiting(self, data: st.DataObject) -> None:
        """A client gives up."""
        self.run(data.draw(st.sampled_from(self.opening)).cancel)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def closes(self, data: st.DataObject) -> None:
        """A client closes its session, or does so once more."""
        self.run(data.draw(st.sampled_from(self.open)).close)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def speaks(self, data: st.DataObject) -> None:
        """A client says something: it is taken unless the session is over or too much waits."""
        session = data.draw(st.sampled_from(self.open))
        if session.end is not None:
            return
        self.number += 1
        call = Call(request_id=f"{self.number}", prompt=Payload())
        waiting = [
            name
            for name, turn in self.stages.turns.items()
            if turn.session is not None
            and turn.session.name == session.name
            and name not in self.stages.began
        ]
        try:
            self.desk.submit(session.name, call)
        except SessionRefusedError:
            assert len(waiting) == 2
        else:
            assert len(waiting) < 2

    @precondition(lambda self: self.stages.turns)
    @rule(data=st.data(), ends=st.booleans())
    def turn(self, data: st.DataObject, *, ends: bool) -> None:
        """A turn begins, or has settled."""
        name = data.draw(st.sampled_from(sorted(self.stages.turns)))
        if ends:
            self.run(self.desk.settled, self.stages.turns.pop(name))
        else:
            self.stages.began.append(name)
            self.run(self.desk.begun, self.stages.turns[name])

    @rule(data=st.data(), fails=st.booleans())
    def answers(self, data: st.DataObject, *, fails: bool) -> None:
        """A stage does what it was told first, or fails at it."""
        busy = [where for where, mail in self.stages.mail.items() if mail]
        if not busy:
            return
        where = data.draw(st.sampled_from(busy))
        message, holds = self.stages.mail[where].popleft(), self.stages.holds[where]
        fault = "it fails" if fails else None
        answer: Opened | Closed
        if isinstance(message, OpenSession):
            assert message.session not in holds
            if not fails:
                holds.add(message.session)
                assert len(holds) <= CAP, "a stage is never given more than it has room for"
            answer = Opened(session=message.session, fault=fault)
        else:
            assert isinstance(message, CloseSession)
            if not fails:
                holds.discard(message.session)
            answer = Closed(session=message.session, fault=fault)
        self.run(self.desk.answered, where, answer)

    @rule()
    def time_passes(self) -> None:
        """The interval of the reaper is over."""
        self.run(self.desk._reap)

    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        """A replica dies with all that it holds, or comes back with nothing."""
        where = data.draw(st.sampled_from(PLACES))
        if where not in self.stages.mail:
            self.stages.mail[where] = deque()
            self.run(self.desk.joined, where)
            return
        del self.stages.mail[where]
        self.stages.holds[where] = set()
        self.run(self.desk.died, where, "it died")
        for session in self.open:
            if session.replicas[f"stage{where.stage}"] == where.replica:
                assert session.end is not None

    @invariant()
    def places_are_held_while_anything_is(self) -> None:
        """A session that any stage keeps holds its place, and nothing else does."""
        states: Mapping[str, SessionState] = self.desk.core.states
        kept = set().union(*self.stages.holds.values())
        told = {
            message.session
            for mail in self.stages.mail.values()
            for message in mail
            if isinstance(message, OpenSession | CloseSession)
        }
        assert kept | told <= set(states)
        assert all(count <= CAP for count in self.desk.core.reserved.values())
        assert len(states) <= MOST
        for session in self.open:
            is_open = states.get(session.name) is SessionState.OPEN
            assert is_open == (session.end is None)
            assert session._clean.done() == (session.name not in states)
            if session.end is not None and session.end.error is not None:
                assert isinstance(session.end.error, ClosedError | StageFailedError)


TestDesk = AnyDesk.TestCase


@pytest.mark.parametrize("answer", [Opened(session="s"), Closed(session="s")])
def test_a_stage_speaks_of_sessions_that_it_was_told_of(answer: Opened | Closed) -> None:
    """Anything else ends its stream."""
    duplex = duplex_plan(GROUPS)

    async def work() -> None:
        desk = SessionDesk(talking(duplex, (2, 2)), duplex, 0, Stages(), lambda _: {})
        with pytest.raises(ProtocolError, match="does not hold"):
            desk.answered(PLACES[0], answer)
        opening = asyncio.ensure_future(desk.open(cast("Calls", None), None))
        await asyncio.sleep(0)
        with pytest.raises(ProtocolError, match="that is not over"):
            desk.answered(PLACES[0], Closed(session="session-0"))
        desk.close_all()
        await asyncio.gather(opening, return_exceptions=True)

    asyncio.run(work())
