"""Full-duplex sessions in one stage process: what its engine is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stagemesh.engines._fake import FakeEngine
from stagemesh.engines.fake import FakeOptions
from stagemesh.runtime.core.actions import SessionRoute
from stagemesh.runtime.inbox import Add, Append, Enter, Exit, Forget
from stagemesh.runtime.messages import (
    Key,
    Submit,
    decode,
    encode,
)
from stagemesh.runtime.running import Call
from stagemesh.runtime.session_messages import (
    SessionClosed,
    SessionOpened,
)
from stagemesh.runtime.stage_loop import Emission, StageLoop
from stagemesh.runtime.submits import _Known, _submits
from stagemesh.spec.payload import Payload
from stagemesh.testing.engine_context import engine_context
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime import desk
from tests.runtime.desk import Desk, finished
from tests.runtime.looping import KEY, Stage


class Talking(Stage):
    """A loop whose engine has room for some sessions."""

    def __init__(self, sessions: int = 1, **options: object) -> None:
        """Start the engine."""
        super().__init__(options=FakeOptions(num_outputs=1))
        program = FakeOptions(num_outputs=1, **options)  # type: ignore[arg-type]  # as given
        self.engine = FakeEngine(engine_context(program, max_sessions=sessions))
        targets = self.loop._targets
        self.loop = StageLoop(self.engine, targets, self.inbox, self._emit)

    def answers(self, *commands: Enter | Exit) -> list[Emission]:
        """What it says to these."""
        self.said.clear()
        for command in commands:
            self.inbox.put(command)
        self.turn()
        return list(self.said)


def test_sessions_are_opened_and_closed() -> None:
    """Each is answered; one that is unknown is closed as well."""
    stage = Talking()
    assert stage.answers(Enter(session="a")) == [SessionOpened(session="a")]
    assert stage.answers(Exit(session="a"), Exit(session="b"), Enter(session="c")) == [
        SessionClosed(session="a"),
        SessionClosed(session="b"),
        SessionOpened(session="c"),
    ]


def test_a_session_that_fails_is_answered_and_the_stage_goes_on() -> None:
    """At opening, at closing, and for want of room."""
    stage = Talking(fail_at="close_session")
    (first, second) = stage.answers(Enter(session="a"), Enter(session="b"))
    assert first == SessionOpened(session="a")
    assert second == SessionOpened(
        session="b", fault="RuntimeError: more than `1` sessions were opened"
    )
    (closed,) = stage.answers(Exit(session="a"))
    assert closed == SessionClosed(
        session="a", fault="RuntimeError: the program fails at `close_session`"
    )
    assert stage.answers(Exit(session="a")) == [SessionClosed(session="a")]
    (failed,) = Talking(fail_at="open_session").answers(Enter(session="a"))
    assert isinstance(failed, SessionOpened)
    assert failed.fault is not None


def test_turns_reach_the_engine_with_their_session() -> None:
    """And one of a session that is not open fails alone."""
    stage = Talking()
    stage.answers(Enter(session="a"))
    for number, key in enumerate((KEY, Key(rid="next", epoch=7))):
        stage.inbox.put(Add(key=key, params={}, targets=(1,), since=0.0, session="a"))
        stage.inbox.put(Append(key=key, payload=Payload(meta={"text": "x"}), last=True))
        stage.finish()
        assert stage.texts(1, key) == [("x" * (number + 1) + "#0", True)]
    lost = Key(rid="lost", epoch=8)
    stage.inbox.put(Add(key=lost, params={}, targets=(1,), since=0.0, session="b"))
    stage.turn()
    assert stage.ends()[-1].key == lost


@pytest.fixture
def found() -> Iterator[Desk]:
    """A desk on a loop that does not run any further."""
    yield from desk.a_desk()


def test_a_submit_names_the_session_of_its_turn(found: Desk) -> None:
    """From the caller to the engine's thread."""
    route = SessionRoute(name="s", route={0: 0, 1: 0, 2: 0})
    call = Call(request_id="r", prompt=Payload(), session=route)
    known = _Known(key=desk.KEY, processes={}, turns={})
    frames = _submits(fake_plan(three_stages()), call, known, [0])
    submit = decode(frames[0][13:])
    assert isinstance(submit, Submit)
    assert submit.session == "s"
    found.requests.submit(submit, {1: found.out})
    (add,) = found.commands()
    assert isinstance(add, Add)
    assert add.session == "s"
    found.over(finished())


def test_answers_go_to_the_caller(found: Desk) -> None:
    """As they are."""
    answers: list[Emission] = [SessionOpened(session="s"), SessionClosed(session="s", fault="no")]
    found.requests.take(answers)
    assert found.told == answers


def test_a_turn_is_forgotten_before_its_session(found: Desk) -> None:
    """The engine is never asked to close a session whose turns it holds."""
    found.submit()
    found.requests.cancel(desk.KEY)
    found.inbox.put(Exit(session="s"))
    assert found.commands()[1:] == [Forget(key=desk.KEY), Exit(session="s")]
    found.over(finished())


def test_a_session_has_a_name_on_the_wire() -> None:
    """Also there."""
    for message in (SessionOpened(session="s"), SessionClosed(session="s", fault="no")):
        assert decode(encode(message)[13:]) == message
