"""When an input of a stage gives back its memory and its credit."""

from __future__ import annotations

import pytest

from stagemesh.engines._fake import FakeEngine
from stagemesh.engines.fake import FakeOptions
from stagemesh.runtime.inbox import Add, Append, Forget, Pause, Resume
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.messages import Failed, Finished, Key
from stagemesh.spec.payload import Payload
from tests.runtime.looping import KEY, OTHER, Stage


def test_an_input_for_nobody_is_released() -> None:
    """A chunk for a request that is gone gives its memory back."""
    stage = Stage()
    released: list[int] = []
    payload = Payload(release=lambda: released.append(1))
    stage.inbox.put(Append(key=KEY, payload=payload, last=True))
    stage.turn()
    assert released == [1]


class Loan:
    """An input that says what became of its memory and of its credit."""

    def __init__(self, text: str, key: Key = KEY, *, last: bool = False) -> None:
        """Nothing was given back yet."""
        self.memory_back = self.credit_back = False
        self._meta = {"text": text}
        payload = Payload(meta=self._meta, release=self._release)
        self.append = Append(key=key, payload=payload, last=last, keep=self._keep)

    def _release(self) -> None:
        self.memory_back = self.credit_back = True

    def _keep(self) -> Payload:
        self.memory_back = True
        return Payload(meta=self._meta, release=self._release)


def echoing(*loans: Loan, kind: type[FakeEngine] = FakeEngine) -> Stage:
    """A loop over an engine that echoes slowly, and has been given these after one turn."""
    stage = Stage(options=FakeOptions(delay_steps=1), kind=kind)
    stage.inbox.put(Add(key=KEY, params={}, targets=(CALLER,), since=0.0))
    for loan in loans:
        stage.inbox.put(loan.append)
    stage.turn()
    return stage


def test_an_input_gives_credit_when_the_engine_wants_it() -> None:
    """Its memory it gives back with the turn in which it came; order and end stay."""
    loans = [Loan("a"), Loan("b"), Loan("c", last=True)]
    stage = echoing(*loans)
    assert [loan.credit_back for loan in loans] == [True, False, False]
    assert [loan.memory_back for loan in loans] == [True, True, True]
    stage.turn()
    assert [loan.credit_back for loan in loans] == [True, True, True]
    stage.finish()
    assert stage.texts(CALLER) == [("a", False), ("b", False), ("c", True)]


def test_an_input_that_waits_while_its_request_is_paused_comes_after_it() -> None:
    """However many turns that takes."""
    late = Loan("b", last=True)
    stage = echoing(Loan("a"), late)
    stage.inbox.put(Pause(key=KEY))
    for _ in range(3):
        stage.inbox.put(Resume(key=OTHER))
        stage.turn()
    assert (late.memory_back, late.credit_back) == (True, False)
    stage.inbox.put(Resume(key=KEY))
    stage.finish()
    assert stage.texts(CALLER) == [("a", False), ("b", True)]


def test_inputs_that_nobody_took_give_credit_when_their_request_is_over() -> None:
    """Whether it was cancelled or failed."""
    loans = [Loan("a"), Loan("b"), Loan("c")]
    stage = echoing(*loans)
    stage.inbox.put(Forget(key=KEY))
    stage.turn()
    assert [loan.credit_back for loan in loans] == [True] * 3
    assert not stage.engine.has_work()


def test_an_engine_that_raises_at_an_input_fails_its_request_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Those behind it are given back."""

    class Picky(FakeEngine):
        """Refuses some inputs."""

        def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
            """Raise."""
            if payload.meta["text"] == "b":
                raise RuntimeError("not this one")
            super().append(request_id, payload, last=last)

    loans = [Loan("a"), Loan("b"), Loan("c")]
    stage = echoing(*loans, kind=Picky)
    stage.submit(OTHER)
    stage.finish()
    assert [loan.credit_back for loan in loans] == [True] * 3
    assert [type(end) for end in stage.ends()] == [Failed, Finished]
    assert "not this one" in capfd.readouterr().err
