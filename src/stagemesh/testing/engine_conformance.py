"""What every engine must do, as tests over one `EngineCase`; for our engines and for third parties.

Use: derive a test class and give it a fixture `case`.

    class TestMyEngine(EngineConformance):
        @pytest.fixture
        def case(self) -> EngineCase:
            return MyCase()

The tests see only the contract of `spec/engine.py`, so they hold for any engine that keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from stagemesh.spec.engine import Engine, EngineOutput, EngineRequest
from stagemesh.spec.payload import MetaValue, Payload

MAX_STEPS: Final = 2000
"""Steps after which a request counts as stuck."""

Outputs: TypeAlias = Mapping[str, list[EngineOutput]]
"""Outputs of each request, in order."""


class EngineCase(Protocol):
    """An engine under test, and requests that fit it. Requests of one variant are equal."""

    @property
    def num_variants(self) -> int:
        """Different requests that it offers; at least 3, and each gives two payloads or more."""
        ...

    def make(self) -> Engine:
        """Return a new engine that is not loaded."""
        ...

    def params(self, variant: int) -> Mapping[str, object]:
        """Parameters of a variant; fixed by a seed where the engine draws."""
        ...

    def whole(self, variant: int) -> Payload:
        """All input of a variant in one payload."""
        ...

    def parts(self, variant: int) -> Sequence[Payload]:
        """The same input as several payloads."""
        ...

    def bad(self) -> Sequence[tuple[Mapping[str, object], Payload]]:
        """Parameters and input of requests that must fail alone, one for each way there is.

        Ways are parameters that cannot be used, input that cannot, and what breaks in a step.
        """
        ...

    def value(self, payloads: Sequence[Payload]) -> object:
        """What the payloads of one request say together, for comparing."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Loan:
    """A payload that counts how often it is released."""

    payload: Payload
    """What to hand to the engine."""
    released: int = 0
    """Times it was released."""

    @classmethod
    def of(cls, payload: Payload) -> Loan:
        """Lend a payload."""
        loan = cls(payload=payload)

        def release() -> None:
            loan.released += 1

        loan.payload = replace(payload, release=release)
        return loan


@dataclass(slots=True, kw_only=True, eq=False)
class Drive:
    """A loaded engine with everything it has put out; checks the life of requests on the way."""

    engine: Engine
    """The engine."""
    outputs: dict[str, list[EngineOutput]] = field(default_factory=dict)
    """Outputs so far."""
    ended: set[str] = field(default_factory=set)
    """Requests that may put out nothing more."""

    def start(self, name: str, params: Mapping[str, object], *inputs: Payload) -> None:
        """Add a request with all its input."""
        self.engine.add(EngineRequest(request_id=name, params=params))
        self.outputs[name] = []
        for index, payload in enumerate(inputs):
            self.engine.append(name, payload, last=index == len(inputs) - 1)

    def step(self) -> list[EngineOutput]:
        """Step once; nothing may come from requests that have ended or were never added."""
        found = self.engine.step()
        for output in found:
            assert output.request_id in self.outputs, "an output of an unknown request"
            assert output.request_id not in self.ended, "an output after the end"
            assert output.finish is None or output.error is None, "two ends in one output"
            self.outputs[output.request_id].append(output)
            if output.finish is not None or output.error is not None:
                self.ended.add(output.request_id)
        return found

    def until(self, reached: Callable[[], bool]) -> None:
        """Step until something holds."""
        for _ in range(MAX_STEPS):
            if reached():
                return
            assert self.engine.has_work(), "no work is left, yet it is not reached"
            self.step()
        raise AssertionError(f"not reached within {MAX_STEPS} steps")

    def finish(self) -> Outputs:
        """Step while there is work."""
        for _ in range(MAX_STEPS):
            if not self.engine.has_work():
                return self.outputs
            self.step()
        raise AssertionError(f"work is left after {MAX_STEPS} steps")

    def payloads(self, name: str) -> list[Payload]:
        """All payloads of one request so far."""
        return [payload for output in self.outputs[name] for payload in output.payloads]


class EngineConformance:
    """The suite; pytest collects it through a derived class."""

    def test_a_request_ends_exactly_once(self, case: EngineCase) -> None:
        """Every request gives outputs, then one end, and nothing is left to do."""
        with _loaded(case) as drive:
            for variant in _variants(case):
                drive.start(str(variant), case.params(variant), case.whole(variant))
            for name, outputs in drive.finish().items():
                assert len(drive.payloads(name)) > 1, name
                assert outputs[-1].finish is not None, outputs[-1].error
            assert len(drive.ended) == case.num_variants

    def test_results_do_not_depend_on_other_requests(self, case: EngineCase) -> None:
        """A request says the same alone and among others that come one step apart."""
        alone = [_alone(case, variant) for variant in _variants(case)]
        with _loaded(case) as drive:
            for variant in (*_variants(case), *reversed(_variants(case))):
                name = f"{variant}{'again' if str(variant) in drive.outputs else ''}"
                drive.start(name, case.params(variant), case.whole(variant))
                drive.step()
            drive.finish()
            for variant in _variants(case):
                assert case.value(drive.payloads(f"{variant}")) == alone[variant]
                assert case.value(drive.payloads(f"{variant}again")) == alone[variant]

    def test_streamed_input_equals_whole_input(self, case: EngineCase) -> None:
        """Input in parts, with all steps that are possible between them, gives the same result."""
        for variant in _variants(case):
            with _loaded(case) as drive:
                drive.start("a", case.params(variant))
                parts = case.parts(variant)
                assert len(parts) > 1, "the case must split its input"
                for index, part in enumerate(parts):
                    drive.engine.append("a", part, last=index == len(parts) - 1)
                    drive.finish()
                assert drive.outputs["a"][-1].finish is not None
                assert case.value(drive.payloads("a")) == _alone(case, variant)

    def test_a_request_that_waits_for_input_wants_it(self, case: EngineCase) -> None:
        """Before the first one, and whenever nothing more comes of those it has."""
        for variant in _variants(case):
            with _loaded(case) as drive:
                drive.start("a", case.params(variant))
                *parts, last = case.parts(variant)
                for part in parts:
                    assert drive.engine.wants_input("a")
                    drive.engine.append("a", part, last=False)
                    drive.finish()
                assert drive.engine.wants_input("a")
                drive.engine.append("a", last, last=True)
                drive.finish()
                assert drive.outputs["a"][-1].finish is not None

    def test_waiting_for_input_is_no_work(self, case: EngineCase) -> None:
        """A request without its last input stops having work, and does not end."""
        with _loaded(case) as drive:
            drive.start("a", case.params(0))
            assert not drive.engine.has_work()
            assert drive.step() == []
            drive.engine.append("a", case.parts(0)[0], last=False)
            drive.finish()
            assert "a" not in drive.ended

    def test_a_paused_request_says_nothing_and_goes_on_as_if_never_paused(
        self, case: EngineCase
    ) -> None:
        """Pausing after the first output holds the rest back; resuming gives all of it."""
        with _loaded(case) as drive:
            drive.start("a", case.params(0), case.whole(0))
            drive.until(lambda: bool(drive.payloads("a")))
            drive.engine.pause("a")
            before = len(drive.outputs["a"])
            assert not drive.engine.has_work()
            assert drive.step() == []
            drive.start("b", case.params(1), case.whole(1))
            drive.until(lambda: "b" in drive.ended)
            assert len(drive.outputs["a"]) == before
            assert not drive.engine.has_work()
            drive.engine.resume("a")
            drive.until(lambda: "a" in drive.ended)
            assert case.value(drive.payloads("a")) == _alone(case, 0)
            assert case.value(drive.payloads("b")) == _alone(case, 1)

    def test_a_request_paused_before_its_input_waits_for_resume(self, case: EngineCase) -> None:
        """Input that comes while paused is kept; a failure is not told before `resume` either."""
        requests = {"a": (case.params(0), case.whole(0)), **_bad(case)}
        with _loaded(case) as drive:
            for name, (params, given) in requests.items():
                drive.start(name, params)
                drive.engine.pause(name)
                drive.engine.append(name, given, last=True)
            assert not drive.engine.has_work()
            assert drive.step() == []
            for name in requests:
                drive.engine.resume(name)
            drive.until(lambda: drive.ended == requests.keys())
            assert case.value(drive.payloads("a")) == _alone(case, 0)

    def test_a_cancelled_request_says_nothing_more(self, case: EngineCase) -> None:
        """Cancelling works before input, between outputs and while paused; others go on."""
        with _loaded(case) as drive:
            drive.start("empty", case.params(0))
            drive.start("running", case.params(0), case.whole(0))
            drive.start("paused", case.params(1), case.whole(1))
            drive.start("other", case.params(2), case.whole(2))
            drive.engine.pause("paused")
            drive.until(lambda: bool(drive.payloads("running")))
            for name in ("empty", "running", "paused"):
                drive.engine.cancel(name)
                drive.ended.add(name)
            drive.until(lambda: "other" in drive.ended)
            assert not drive.engine.has_work()
            assert case.value(drive.payloads("other")) == _alone(case, 2)

    def test_an_id_can_be_used_again(self, case: EngineCase) -> None:
        """After its end or its cancellation, a request's id names a new request."""
        with _loaded(case) as drive:
            drive.start("a", case.params(0), case.whole(0))
            drive.step()
            drive.engine.cancel("a")
            for variant in (1, 2):
                drive.ended.discard("a")
                drive.start("a", case.params(variant), case.whole(variant))
                drive.until(lambda: "a" in drive.ended)
                assert case.value(drive.payloads("a")) == _alone(case, variant)

    def test_unknown_requests_are_ignored(self, case: EngineCase) -> None:
        """Nothing happens for ids that the engine does not know; their payloads are released."""
        loan = Loan.of(case.whole(0))
        with _loaded(case) as drive:
            drive.engine.pause("nobody")
            drive.engine.resume("nobody")
            drive.engine.cancel("nobody")
            assert drive.engine.wants_input("nobody")
            drive.engine.append("nobody", loan.payload, last=True)
            assert not drive.engine.has_work()
            assert drive.step() == []
        assert loan.released == 1

    def test_a_failing_request_leaves_its_neighbours_alone(self, case: EngineCase) -> None:
        """However a bad request fails, it ends with an error of its own, those beside it well."""
        alone = [_alone(case, variant) for variant in (0, 1)]
        for name, (params, given) in _bad(case).items():
            with _loaded(case) as drive:
                drive.start("before", case.params(0), case.whole(0))
                drive.start(name, params, given)
                drive.start("after", case.params(1), case.whole(1))
                drive.finish()
                fault = drive.outputs[name][-1].error
                assert fault is not None, name
                assert fault.message
                assert drive.engine.wants_input(name)
                assert case.value(drive.payloads("before")) == alone[0]
                assert case.value(drive.payloads("after")) == alone[1]

    def test_every_payload_is_released_exactly_once(self, case: EngineCase) -> None:
        """Inputs are given back whether their request ends, fails, is cancelled or closed away."""
        bad = _bad(case)
        loans = {name: Loan.of(given) for name, (_, given) in bad.items()} | {
            "good": Loan.of(case.whole(0)),
            "cancelled": Loan.of(case.whole(1)),
            "closed": Loan.of(case.whole(2)),
        }
        with _loaded(case) as drive:
            drive.start("good", case.params(0), loans["good"].payload)
            for name, (params, _) in bad.items():
                drive.start(name, params, loans[name].payload)
            drive.start("cancelled", case.params(1), loans["cancelled"].payload)
            drive.engine.cancel("cancelled")
            drive.ended.add("cancelled")
            drive.finish()
            drive.start("closed", case.params(2), loans["closed"].payload)
        assert {name: loan.released for name, loan in loans.items()} == dict.fromkeys(loans, 1)

    def test_only_listed_actions_can_be_called(self, case: EngineCase) -> None:
        """A control action that the engine does not list raises `KeyError`."""
        args: Mapping[str, MetaValue] = {}
        with _loaded(case) as drive:
            for name in ("", "load", "close", "__init__", "no_such_action"):
                try:
                    drive.engine.call(name, args)
                except KeyError:
                    continue
                raise AssertionError(f"`{name}` was called")

    def test_close_can_be_called_again(self, case: EngineCase) -> None:
        """Closing twice, loaded or not, with requests or without, does nothing more."""
        never_loaded = case.make()
        never_loaded.close()
        never_loaded.close()
        with _loaded(case) as drive:
            drive.start("a", case.params(0), case.whole(0))
            drive.step()
            drive.engine.close()
            assert not drive.engine.has_work()


@contextmanager
def _loaded(case: EngineCase) -> Iterator[Drive]:
    engine = case.make()
    engine.load()
    try:
        yield Drive(engine=engine)
    finally:
        engine.close()


def _variants(case: EngineCase) -> Sequence[int]:
    return range(case.num_variants)


def _bad(case: EngineCase) -> Mapping[str, tuple[Mapping[str, object], Payload]]:
    """The bad requests by name."""
    return {f"bad{number}": request for number, request in enumerate(case.bad())}


def _alone(case: EngineCase, variant: int) -> object:
    with _loaded(case) as drive:
        drive.start("alone", case.params(variant), case.whole(variant))
        drive.finish()
        return case.value(drive.payloads("alone"))


def joined_text(payloads: Iterable[Payload]) -> str:
    """Return the texts of payloads one after another, for cases whose outputs are text."""
    return "".join(str(payload.meta.get("text", "")) for payload in payloads)
