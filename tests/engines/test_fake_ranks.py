"""The fake engine on several ranks: same outputs, and whoever was asked otherwise is found."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from stagemesh.engines._fake import fake_engine
from stagemesh.engines.fake import FakeOptions
from stagemesh.spec.engine import Engine, EngineOutput, EngineRequest, Rendezvous
from stagemesh.spec.payload import Buffer, Payload
from stagemesh.testing.engine_context import engine_context
from tests.waiting import WAIT_S

Work = Callable[[Engine], object]


class Ranks:
    """Engines that meet, each on a thread of its own."""

    def __init__(self, num_ranks: int, program: FakeOptions, pool: ThreadPoolExecutor) -> None:
        """Load all of them."""
        self._pool = pool
        listener = socket.create_server(("127.0.0.1", 0))
        address, port = listener.getsockname()
        fd = listener.detach()
        self.engines = [
            fake_engine(
                engine_context(
                    program,
                    rank=rank,
                    world_size=num_ranks,
                    rendezvous=Rendezvous(
                        address=address, port=port, listener=None if rank else fd
                    ),
                )
            )
            for rank in range(num_ranks)
        ]
        self.all(lambda engine: engine.load())

    def all(self, *works: Work) -> list[Future[object]]:
        """Do something at every rank at once: the same, or something for each; wait for it."""
        todo = works * len(self.engines) if len(works) == 1 else works
        done = [
            self._pool.submit(work, engine) for work, engine in zip(todo, self.engines, strict=True)
        ]
        for each in done:
            each.exception(WAIT_S)
        return done

    def step(self) -> Sequence[EngineOutput]:
        """What rank 0 says in a step."""
        outputs = self.all(lambda engine: engine.step())[0].result()
        assert isinstance(outputs, list)
        return outputs


@contextmanager
def ranks(num_ranks: int, **program: object) -> Iterator[Ranks]:
    """Engines that have loaded."""
    options = FakeOptions(**program)  # type: ignore[arg-type]
    with ThreadPoolExecutor(num_ranks) as pool:
        found = Ranks(num_ranks, options, pool)
        try:
            yield found
        finally:
            for engine in found.engines:
                engine.close()


def given(*data: bytes) -> Work:
    """Give the request `a`, with such buffers."""

    def work(engine: Engine) -> None:
        buffers = tuple(
            Buffer(name=f"b{number}", dtype="uint8", shape=(len(one),), data=memoryview(one))
            for number, one in enumerate(data)
        )
        engine.add(EngineRequest(request_id="a"))
        engine.append("a", Payload(meta={"text": "hi"}, buffers=buffers), last=True)

    return work


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("data", [(), (b"",), (b"abc", b"", b"0123456789")], ids=len)
def test_outputs_are_those_of_one_rank(num_ranks: int, data: tuple[bytes, ...]) -> None:
    """Put together from a slice of every rank, whatever the lengths."""
    with ranks(num_ranks) as found:
        found.all(given(*data))
        (output,) = found.step()
    (payload,) = output.payloads
    assert tuple(bytes(buffer.data) for buffer in payload.buffers) == data


def test_an_output_needs_the_input_of_every_rank() -> None:
    """Bytes that one rank has otherwise are found."""
    with ranks(2) as found:
        found.all(given(b"right"), given(b"wrong"))
        first, _ = found.all(lambda engine: engine.step())
        with pytest.raises(RuntimeError, match="rank `1` was not asked what rank `0` was"):
            first.result()
        found.engines[0].close()


@pytest.mark.parametrize("name", ["pause", "resume", "cancel"])
def test_calls_and_their_order_count(name: str) -> None:
    """One call more is found at the next comparison."""
    with ranks(3) as found:
        found.all(given(b"x"))
        getattr(found.engines[2], name)("a")
        first, *_ = found.all(lambda engine: engine.call("digest", {}))
        with pytest.raises(RuntimeError, match="rank `2` was not asked"):
            first.result()
        found.engines[0].close()


def test_digests_are_compared_on_request() -> None:
    """All are the same, and change with what was asked."""
    with ranks(2) as found:
        before = found.all(lambda engine: engine.call("digest", {}))[0].result()
        found.all(given(b"x"))
        after = found.all(lambda engine: engine.call("digest", {}))[0].result()
        echoed = found.all(lambda engine: engine.call("echo", {"n": 1}))
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert [len(set(each["digests"])) for each in (before, after)] == [1, 1]
    assert before != after
    assert [each.result() for each in echoed] == [{"n": 1}] * 2


def test_a_rank_that_leaves_is_missed() -> None:
    """As collectives are that fail when a peer is gone."""
    with ranks(2) as found:
        found.engines[1].close()
        found.engines[0].add(EngineRequest(request_id="a"))
        with pytest.raises(ConnectionError, match="another rank has left"):
            found.engines[0].step()


def test_a_program_may_strike_at_one_rank_alone() -> None:
    """The others go on, and miss it."""
    with ranks(2, num_outputs=1, fail_at="raise", at_rank=1) as found:
        found.all(given(b"x"))
        second = found.all(lambda _engine: None, lambda engine: engine.step())[1]
    with pytest.raises(RuntimeError, match="fails at `raise`"):
        second.result()
