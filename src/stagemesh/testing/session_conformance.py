"""What every engine that keeps sessions must do, as tests over one `SessionCase`.

Use: derive a test class and give it a fixture `case`, beside `EngineConformance` for all else.

    class TestMySessions(SessionConformance):
        @pytest.fixture
        def case(self) -> SessionCase:
            return MyCase()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from stagemesh.spec.engine import EngineRequest, SessionEngine
from stagemesh.spec.payload import Payload
from stagemesh.testing.engine_conformance import Drive


class SessionCase(Protocol):
    """An engine under test that has to keep two sessions at a time, and requests that fit it."""

    def make(self) -> SessionEngine:
        """Return a new engine that is not loaded."""
        ...

    def params(self, variant: int) -> Mapping[str, object]:
        """Parameters of a variant; fixed by a seed where the engine draws."""
        ...

    def whole(self, variant: int) -> Payload:
        """All input of a variant, of which there are three; the engine must tell them apart."""
        ...

    def value(self, payloads: Sequence[Payload]) -> object:
        """What the payloads of one request say together, for comparing.

        A second turn says something else than the same request does as the first one.
        """
        ...


class _Talk:
    """An engine, and the turns of its sessions."""

    def __init__(self, case: SessionCase, engine: SessionEngine) -> None:
        self.engine = engine
        self.drive = Drive(engine=engine)
        self._case = case
        self._number = 0

    def begin(self, session: str | None, variant: int) -> str:
        """Add a turn with its input; return the name of the request."""
        self._number += 1
        name = f"request{self._number}"
        params = self._case.params(variant)
        self.engine.add(EngineRequest(request_id=name, params=params, session=session))
        self.drive.outputs[name] = []
        self.engine.append(name, self._case.whole(variant), last=True)
        return name

    def says(self, session: str | None, variant: int) -> object:
        """What a turn says, from its beginning to its end."""
        name = self.begin(session, variant)
        self.drive.until(lambda: name in self.drive.ended)
        return self.value(name)

    def value(self, name: str) -> object:
        """What a request has said."""
        assert self.drive.outputs[name][-1].error is None, self.drive.outputs[name][-1].error
        return self._case.value(self.drive.payloads(name))


class SessionConformance:
    """The suite; pytest collects it through a derived class."""

    def test_a_session_keeps_something_from_turn_to_turn(self, case: SessionCase) -> None:
        """The same input says something else in the second turn, and the same in each session."""
        with _talking(case) as talk:
            talk.engine.open_session("a")
            talk.engine.open_session("b")
            first, second = talk.says("a", 0), talk.says("a", 0)
            assert first != second
            assert (talk.says("b", 0), talk.says("b", 0)) == (first, second)

    def test_sessions_know_nothing_of_each_other(self, case: SessionCase) -> None:
        """Turns that run beside one another say what they say alone; so do other requests."""
        with _talking(case) as talk:
            talk.engine.open_session("a")
            alone = [talk.says("a", variant) for variant in (0, 1)]
            outside = talk.says(None, 2)
        with _talking(case) as talk:
            talk.engine.open_session("a")
            talk.engine.open_session("b")
            for turn in (0, 1):
                names = [talk.begin("a", turn), talk.begin("b", 2), talk.begin(None, 2)]
                talk.drive.finish()
                assert talk.value(names[0]) == alone[turn]
                assert talk.value(names[2]) == outside

    def test_a_session_that_was_closed_is_forgotten(self, case: SessionCase) -> None:
        """Its name may be used again, for one that knows nothing; the others go on."""
        with _talking(case) as talk:
            talk.engine.open_session("a")
            talk.engine.open_session("b")
            first = talk.says("a", 0)
            assert talk.says("b", 0) == first
            talk.engine.close_session("a")
            talk.engine.open_session("a")
            assert talk.says("a", 0) == first
            assert talk.says("b", 0) != first

    def test_places_are_given_back(self, case: SessionCase) -> None:
        """As many may come, one after another, as want to; unknown ones may be closed."""
        with _talking(case) as talk:
            for number in range(5):
                talk.engine.open_session(f"{number}")
                talk.engine.open_session(f"other{number}")
                talk.engine.close_session(f"{number}")
                talk.engine.close_session(f"other{number}")
                talk.engine.close_session(f"{number}")
            talk.engine.close_session("nobody")

    def test_a_cancelled_turn_leaves_its_session(self, case: SessionCase) -> None:
        """The next one is served, and a session without a turn is no work."""
        with _talking(case) as talk:
            talk.engine.open_session("a")
            assert not talk.engine.has_work()
            name = talk.begin("a", 0)
            talk.engine.cancel(name)
            assert not talk.engine.has_work()
            talk.says("a", 1)
            talk.engine.close_session("a")


@contextmanager
def _talking(case: SessionCase) -> Iterator[_Talk]:
    engine = case.make()
    engine.load()
    try:
        yield _Talk(case, engine)
    finally:
        engine.close()
