"""Every rank is asked what rank 0 is asked, in the same order, whatever the stage goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagemesh.engines._fake import FakeEngine
from stagemesh.engines.fake import FakeOptions
from stagemesh.runtime.inbox import (
    Add,
    Append,
    Command,
    Enter,
    Exit,
    Forget,
    Inbox,
    Pause,
    Quit,
    Resume,
)
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.messages import (
    Failed,
    Finished,
    Key,
)
from stagemesh.runtime.ranks import broadcast
from stagemesh.runtime.ranks.broadcast import BroadcastEngine
from stagemesh.runtime.ranks.commands import Step
from stagemesh.runtime.ranks.feed import FeedReader, FeedWriter, feed_pair
from stagemesh.runtime.ranks.follower import Follower
from stagemesh.runtime.session_messages import (
    SessionClosed,
    SessionOpened,
)
from stagemesh.runtime.stage_loop import Emission, Over, StageLoop, Target
from stagemesh.spec.engine import EngineOutput, EngineRequest
from stagemesh.spec.payload import Buffer, MetaValue, Payload
from stagemesh.testing.engine_context import engine_context

KEY = Key(rid="r", epoch=0)
AS_IT_IS = Target(bridge=None)


class Recording(FakeEngine):
    """A fake engine that writes down what it is asked."""

    def __init__(self, options: FakeOptions, fails: frozenset[str] = frozenset()) -> None:
        """Raise in the calls named in `fails`."""
        super().__init__(engine_context(options))
        self.log: list[tuple[object, ...]] = []
        self.is_closed = False
        self._fails = fails

    def add(self, request: EngineRequest) -> None:
        """Take a request."""
        self._note("add", request)
        super().add(request)

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Take an input."""
        data = [bytes(buffer.data) for buffer in payload.buffers]
        self._note("append", request_id, dict(payload.meta), data, last)
        super().append(request_id, payload, last=last)

    def step(self) -> list[EngineOutput]:
        """Make a step, which is written down with its outcome."""
        outputs = super().step()
        self._note("step", outputs)
        return outputs

    def pause(self, request_id: str) -> None:
        """Hold back."""
        self._note("pause", request_id)
        super().pause(request_id)

    def resume(self, request_id: str) -> None:
        """Go on."""
        self._note("resume", request_id)
        super().resume(request_id)

    def cancel(self, request_id: str) -> None:
        """Forget."""
        self._note("cancel", request_id)
        super().cancel(request_id)

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """Do as told."""
        self._note("call", name, args)
        return super().call(name, args)

    def close(self) -> None:
        """Close."""
        self.is_closed = True
        super().close()

    def _note(self, name: str, *what: object) -> None:
        self.log.append((name, *what))
        if name in self._fails:
            raise RuntimeError(f"`{name}` fails here")


@dataclass(eq=False)
class Replica:
    """A stage of several ranks in this process; the others follow when they are told to."""

    options: FakeOptions
    num_ranks: int = 3
    fails: Sequence[frozenset[str]] = (frozenset(),) * 3
    said: list[Emission] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make engines, feeds and the loop."""
        self.engines = [Recording(self.options, self.fails[rank]) for rank in range(self.num_ranks)]
        pairs = [feed_pair() for _ in range(1, self.num_ranks)]
        self.readers = [FeedReader(far) for _, far in pairs]
        self.followers = [
            Follower(engine, reader)
            for engine, reader in zip(self.engines[1:], self.readers, strict=True)
        ]
        self.engine = BroadcastEngine(self.engines[0], FeedWriter([near for near, _ in pairs]))
        self.inbox = Inbox()
        targets = {CALLER: AS_IT_IS}
        self.loop = StageLoop(self.engine, targets, self.inbox, self.said.extend, recovers=False)

    def do(self, *commands: Command) -> None:
        """Ask, and make one turn."""
        for command in commands:
            self.inbox.put(command)
        if commands or self.engine.has_work():
            self.loop.turn()

    def submit(self, key: Key = KEY, **params: object) -> None:
        """Add a request with its input."""
        self.do(add(key, **params), append(key, b"input"))

    def follow(self) -> None:
        """Let the other ranks do what they were told, up to the end of the replica."""
        self.engine.close()
        assert [follower.run() for follower in self.followers] == [True] * len(self.followers)

    def close(self) -> None:
        """Close what is open."""
        self.engine._feed.close()
        for reader in self.readers:
            reader.close()


@pytest.fixture
def replica() -> Iterator[Callable[..., Replica]]:
    """Makes replicas, and closes them."""
    with ExitStack() as stack:

        def make(*fails: frozenset[str], **program: object) -> Replica:
            options = FakeOptions(**{"num_outputs": 2, **program})  # type: ignore[arg-type]
            none: frozenset[str] = frozenset()
            found = Replica(options, fails=(*fails, none, none, none)[:3])
            stack.callback(found.close)
            return found

        yield make


def add(key: Key, **params: object) -> Add:
    """A request comes."""
    return Add(key=key, params=params, targets=(CALLER,), since=0.0)


def append(key: Key, data: bytes, *, last: bool = True, text: str = "t") -> Append:
    """An input comes."""
    buffer = Buffer(name="data", dtype="uint8", shape=(len(data),), data=memoryview(data))
    payload = Payload(meta={"text": text}, buffers=(buffer,))
    return Append(key=key, payload=payload, last=last)


KEYS = st.builds(Key, rid=st.sampled_from(["a", "b", "c"]), epoch=st.integers(0, 1))
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "num_outputs": st.integers(0, 3),
        "delay_steps": st.integers(0, 2),
        "output_bytes": st.sampled_from([0, 10, 50_000]),
        "fail_at": st.sampled_from(["add", "append", "step", "stall"]),
        "nonsense": st.just(1),
    },
)
DATA = st.sampled_from([b"", b"x" * 100, b"y" * 40_000])
COMMANDS = st.one_of(
    st.builds(lambda key, params: add(key, **params), KEYS, PARAMS),
    st.builds(lambda key, data, last: append(key, data, last=last), KEYS, DATA, st.booleans()),
    st.builds(Pause, key=KEYS),
    st.builds(Resume, key=KEYS),
    st.builds(Forget, key=KEYS),
)


def possible(turns: Sequence[Sequence[Command]]) -> Iterator[list[Command]]:
    """Leave out what the I/O thread would never say: a name is free only once it was forgotten."""
    live: dict[str, Key] = {}
    for turn in turns:
        kept: list[Command] = []
        for command in turn:
            assert not isinstance(command, Quit)
            if isinstance(command, Add):
                if command.key.rid in live:
                    continue
                live[command.key.rid] = command.key
            elif isinstance(command, Forget) and live.get(command.key.rid) == command.key:
                del live[command.key.rid]
            kept.append(command)
        yield kept


@settings(max_examples=60)
@given(st.lists(st.lists(COMMANDS, max_size=4), max_size=12), st.sampled_from([None, 2]))
def test_all_ranks_are_asked_the_same_under_any_schedule(
    turns: list[list[Command]], num_outputs: int | None
) -> None:
    """Calls, arguments, bytes, order and outcome."""
    replica = Replica(FakeOptions(num_outputs=num_outputs))
    try:
        for turn in possible(turns):
            replica.do(*turn)
        for _ in range(3):
            replica.do()
        replica.follow()
        first, *others = (engine.log for engine in replica.engines)
        assert all(log == first for log in others)
        assert replica.engines[0].is_closed
    finally:
        replica.close()


def test_results_are_those_of_rank_0(replica: Callable[..., Replica]) -> None:
    """The others make them as well; they are not handed over."""
    stage = replica()
    stage.submit()
    stage.do()
    (end,) = (item.terminal for item in stage.said if isinstance(item, Over))
    assert isinstance(end, Finished)
    assert end.units == {"outputs": 2.0}
    stage.follow()


def test_a_step_is_told_before_rank_0_makes_it(replica: Callable[..., Replica]) -> None:
    """Else it would wait alone for collectives; what came before it is in the same message."""
    stage = replica(frozenset({"step"}))
    with pytest.raises(RuntimeError, match="`step` fails here"):
        stage.submit()
    taken = stage.readers[0].take()
    assert taken is not None
    assert [type(command).__name__ for command in taken[0]] == ["Added", "Appended", "Step"]


def test_a_step_that_raises_is_the_end(replica: Callable[..., Replica]) -> None:
    """The engine is not even closed, as its collectives may never come back."""
    stage = replica(frozenset({"step"}))
    with pytest.raises(RuntimeError, match="fails here"):
        stage.submit()
    stage.engine.close()
    assert not stage.engines[0].is_closed
    assert stage.followers[0]._feed.take() is not None
    assert stage.followers[0].run() is False, "rank 0 is gone without a word"


def test_what_nobody_steps_for_is_told_before_the_loop_sleeps(
    replica: Callable[..., Replica],
) -> None:
    """An input that is not the last one is not kept back from the other ranks."""
    stage = replica()
    stage.do(add(KEY), append(KEY, b"one", last=False))
    assert not stage.engine.has_work()
    taken = stage.readers[1].take()
    assert taken is not None
    assert len(taken[0]) == 2


@pytest.mark.parametrize("call", ["add", "append"])
def test_what_fails_everywhere_fails_its_request_alone(
    replica: Callable[..., Replica], call: str
) -> None:
    """The replica goes on."""
    stage = replica(*[frozenset({call})] * 3)
    stage.submit()
    (end,) = (item.terminal for item in stage.said if isinstance(item, Over))
    assert isinstance(end, Failed)
    stage.follow()
    assert stage.engines[0].log == stage.engines[1].log == stage.engines[2].log
    assert stage.engines[0].log[-1] == ("cancel", "r")


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        ((frozenset(), frozenset({"append"})), "`append` fails here"),
        ((frozenset({"append"}),), "rank 0 failed at what went well here"),
    ],
    ids=["here", "at rank 0"],
)
def test_what_fails_at_one_rank_alone_ends_it(
    replica: Callable[..., Replica], fails: tuple[frozenset[str], ...], told: str
) -> None:
    """The ranks are no longer of one mind."""
    stage = replica(*fails)
    stage.submit()
    stage.engine.close()
    with pytest.raises(RuntimeError, match=told):
        stage.followers[0].run()


def test_control_actions_run_everywhere_and_their_names_may_be_wrong(
    replica: Callable[..., Replica],
) -> None:
    """The result is rank 0's; an unknown name is an error for who asks, and for nobody else."""
    stage = replica()
    assert stage.engine.call("echo", {"a": [1]}) == {"a": [1]}
    with pytest.raises(KeyError):
        stage.engine.call("nonsense", {})
    stage.follow()
    assert [len(engine.log) for engine in stage.engines] == [2, 2, 2]


def test_without_a_rank_nothing_goes_on(
    replica: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 makes no step without the others; whoever started them ends it."""
    monkeypatch.setattr(broadcast, "_END_S", 0.0)
    stage = replica()
    stage.readers[0].close()
    with pytest.raises(RuntimeError, match="another rank is gone"):
        stage.submit()
    assert [entry[0] for entry in stage.engines[0].log] == ["add", "append"]


def test_rank_0_is_loaded_when_all_are(replica: Callable[..., Replica]) -> None:
    """So its word counts for the replica."""
    stage = replica()
    for reader in stage.readers:
        reader.ready()
    stage.engine.load()


def test_a_rank_that_hears_nothing_more_says_so(replica: Callable[..., Replica]) -> None:
    """It has done all that it was told before."""
    stage = replica()
    stage.engine._feed.add(Step())
    stage.engine._feed.flush()
    stage.engine._feed.close()
    assert stage.followers[0].run() is False
    assert stage.engines[1].log == [("step", [])]


def test_sessions_are_kept_at_every_rank(replica: Callable[..., Replica]) -> None:
    """One that finds no room finds none anywhere; turns know their session at every rank."""
    made = replica(num_outputs=1)
    for engine in made.engines:
        engine._most_sessions = 1
    made.do(Enter(session="a"), Enter(session="b"))
    for number, name in enumerate(("r", "next")):
        key = Key(rid=name, epoch=number)
        made.do(replace(add(key), session="a"), append(key, b"input"))
    made.do(Exit(session="a"))
    made.follow()
    opened, refused, *_, closed = made.said
    assert opened == SessionOpened(session="a")
    assert isinstance(refused, SessionOpened)
    assert refused.fault is not None
    assert closed == SessionClosed(session="a")
    assert len({repr(engine.log) for engine in made.engines}) == 1
    added = [what[1] for what in made.engines[1].log if what[0] == "add"]
    assert [isinstance(each, EngineRequest) and each.session for each in added] == ["a", "a"]


def test_a_rank_that_opens_what_the_first_one_could_not_ends_its_replica(
    replica: Callable[..., Replica],
) -> None:
    """They are no longer of one mind."""
    made = replica()
    made.engines[1]._most_sessions = 1
    made.do(Enter(session="a"))
    made.engine.close()
    with pytest.raises(RuntimeError, match="rank 0 failed at what went well here"):
        made.followers[0].run()
