"""The requests of a stage process between streams and engine, with the streams left out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stagemesh.runtime.inbox import Add, Append, Forget, Pause, Resume
from stagemesh.runtime.messages import (
    NOTHING,
    Ack,
    Cancelled,
    Chunk,
    Failed,
    Key,
    Progress,
    Submit,
)
from stagemesh.runtime.stage_loop import Counted, Said
from stagemesh.spec.payload import Payload
from stagemesh.testing.connector_conformance import payload_of
from tests.runtime.desk import KEY, ROOM, SIZE, Desk, a_desk, finished


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk with one input."""
    yield from a_desk()


@pytest.fixture
def desk_of_two() -> Iterator[Desk]:
    """A desk whose requests are fed by two edges."""
    yield from a_desk(2)


def test_a_request_and_its_inputs_reach_the_engine_in_order(desk: Desk) -> None:
    """The engine is given the request, then each input, the last one marked."""
    desk.submit()
    desk.feed(Payload(meta={"text": "a"}))
    desk.feed(payload_of(SIZE), last=True)
    add, one, two = desk.commands()
    assert isinstance(add, Add)
    assert (add.params, add.targets) == ({"n": (1,)}, (1,))
    assert isinstance(one, Append)
    assert isinstance(two, Append)
    assert (one.payload.meta, one.last) == ({"text": "a"}, False)
    assert (two.payload, two.last) == (payload_of(SIZE), True)


def test_an_input_may_come_before_its_request(desk: Desk) -> None:
    """Streams are ordered only in themselves: an early chunk waits for its request."""
    desk.feed(payload_of(10), last=True)
    assert desk.commands() == []
    desk.submit()
    assert [type(command) for command in desk.commands()] == [Add, Append]


def test_an_early_input_brings_the_memory_of_its_edge(desk: Desk) -> None:
    """Other requests' inputs that come after it in the same memory are read all the same."""
    other = Key(rid="other", epoch=4)
    desk.submit(other)
    desk.feed(payload_of(SIZE, 1))
    desk.feed(payload_of(SIZE, 2), other)
    desk.submit()
    _, of_other, _, early = desk.commands()
    assert isinstance(of_other, Append)
    assert isinstance(early, Append)
    assert (of_other.payload, early.payload) == (payload_of(SIZE, 2), payload_of(SIZE, 1))


def test_an_early_input_that_is_no_good_fails_its_request_when_it_comes(desk: Desk) -> None:
    """What follows it is given back."""
    desk.requests.chunk(
        desk.into, Chunk(key=KEY, seq=0, number=7, body=b"bad", last=False), NOTHING
    )
    desk.feed(payload_of(10))
    desk.submit()
    desk.over(Cancelled(key=KEY))
    (failed,) = desk.told
    assert isinstance(failed, Failed)
    assert "an input was refused" in failed.message
    assert len(desk.answers.sent) == 2


def test_early_inputs_are_given_back_when_the_caller_goes(desk: Desk) -> None:
    """Their requests will not come any more."""
    desk.feed(payload_of(SIZE))
    assert desk.answers.sent == []
    desk.requests.cancel_all()
    assert len(desk.answers.sent) == 1


def test_an_input_of_a_request_that_is_gone_is_given_back(desk: Desk) -> None:
    """A late chunk is acknowledged and goes nowhere."""
    desk.submit(Key(rid="later", epoch=6))
    desk.commands()
    desk.feed(payload_of(SIZE))
    assert desk.commands() == []


def test_the_last_input_is_the_last_of_all_edges(desk_of_two: Desk) -> None:
    """With two sources only the second end is the end, and an empty one before it is not told."""
    desk = desk_of_two
    desk.submit()
    desk.feed(Payload(), last=True)
    desk.source.drop(KEY)
    desk.into.drop(KEY)
    desk.feed(Payload(), last=True)
    _, append = desk.commands()
    assert isinstance(append, Append)
    assert append.last


def test_without_room_the_request_is_paused_until_there_is(desk: Desk) -> None:
    """What does not fit waits in order; the engine is paused once and resumed when all has gone."""
    desk.submit()
    desk.commands()
    for _ in range(ROOM + 2):
        desk.say()
    assert len(desk.downstream.chunks()) == ROOM
    assert desk.commands() == [Pause(key=KEY)]
    desk.out.acknowledged([desk.downstream.chunks()[0].number])
    assert desk.commands() == []
    desk.out.acknowledged([desk.downstream.chunks()[1].number])
    assert desk.commands() == [Resume(key=KEY)]
    assert [chunk.seq for chunk in desk.downstream.chunks()] == [*range(ROOM + 2)]


def test_the_terminal_word_comes_after_everything_else(desk: Desk) -> None:
    """A finished request is told to the caller when its last chunk has gone."""
    desk.submit()
    for number in range(ROOM + 1):
        desk.say(last=number == ROOM)
    desk.over(finished())
    assert desk.told == []
    desk.out.acknowledged([desk.downstream.chunks()[0].number])
    assert desk.told == [finished()]
    assert desk.downstream.chunks()[-1].last


def test_a_request_has_finished_once_all_it_said_has_left_the_process(desk: Desk) -> None:
    """Whoever dies after that has delivered everything; a failure needs not wait."""
    desk.downstream.is_slow = True
    other = Key(rid="other", epoch=6)
    for key in (KEY, other):
        desk.submit(key)
        desk.say(key=key, last=True)
    desk.over(finished())
    desk.over(Failed(key=other, invalid=False, message="no"))
    assert [type(message) for message in desk.told] == [Failed]
    (then,) = desk.downstream.waits
    then()
    assert desk.told[1:] == [finished()]


def test_a_cancel_drops_what_waits_and_is_answered_once(desk: Desk) -> None:
    """The answer comes when the engine has let go; nothing that waited is sent any more."""
    desk.submit()
    for _ in range(ROOM + 1):
        desk.say()
    desk.requests.cancel(KEY)
    desk.requests.cancel(KEY)
    assert desk.commands()[-1] == Forget(key=KEY)
    desk.say()
    desk.over(Cancelled(key=KEY))
    desk.out.acknowledged([desk.downstream.chunks()[0].number])
    assert desk.told == [Cancelled(key=KEY)]
    assert len(desk.downstream.chunks()) == ROOM


def test_what_waited_behind_a_cancelled_request_goes(desk: Desk) -> None:
    """Nothing else would move it: what waits has room already."""
    other = Key(rid="other", epoch=6)
    desk.submit()
    desk.submit(other)
    for _ in range(ROOM + 1):
        desk.say()
    small = Payload(meta={"text": "a"})
    desk.requests.take([Said(key=other, target=1, payload=small, last=False)])
    desk.commands()
    desk.requests.cancel(KEY)
    assert desk.downstream.chunks()[-1].key == other
    assert Resume(key=other) in desk.commands()


def test_a_cancel_that_crosses_the_end_is_answered_once(desk: Desk) -> None:
    """When the engine had finished but chunks still waited, the cancel ends it at once."""
    desk.submit()
    for _ in range(ROOM + 1):
        desk.say()
    desk.over(finished())
    desk.requests.cancel(KEY)
    assert desk.told == [Cancelled(key=KEY)]
    desk.requests.cancel(KEY)
    assert desk.told == [Cancelled(key=KEY)]


def test_an_output_that_cannot_be_carried_fails_its_request(desk: Desk) -> None:
    """A payload that the connector refuses is the stage's failure, told with the reason."""
    desk.submit()
    bad = Payload(meta={"text": "x" * 2_000_000})
    desk.requests.take([Said(key=KEY, target=1, payload=bad, last=False)])
    desk.over(Cancelled(key=KEY))
    (failed,) = desk.told
    assert isinstance(failed, Failed)
    assert "an output was refused: metadata" in failed.message


def test_a_gap_in_the_inputs_fails_the_request(desk: Desk) -> None:
    """Chunks are counted: one that is missing is never passed over."""
    desk.submit()
    desk.source.send(KEY, payload_of(10), last=False)
    desk.upstream.sent.clear()
    desk.feed(payload_of(10))
    desk.over(Cancelled(key=KEY))
    (failed,) = desk.told
    assert isinstance(failed, Failed)
    assert "chunk `1` came in place of `0`" in failed.message


def test_a_consumer_that_is_gone_holds_nobody_up(desk: Desk) -> None:
    """When the next stage dies, what waited for it counts as sent."""
    desk.submit()
    desk.commands()
    for _ in range(ROOM + 2):
        desk.say()
    desk.out.close()
    assert desk.commands() == [Pause(key=KEY), Resume(key=KEY)]
    desk.say(last=True)
    desk.over(finished())
    assert desk.told == [finished()]


def test_a_request_whose_next_stage_is_gone_is_refused(desk: Desk) -> None:
    """It fails at once, so that the caller never waits for its word."""
    desk.requests.submit(Submit(key=KEY, params={}, targets={1: (0, 0)}), None)
    assert desk.commands() == []
    (failed,) = desk.told
    assert isinstance(failed, Failed)


def test_progress_is_told_now_and_then(desk: Desk) -> None:
    """A burst of counts is one report; the numbers are totals, so nothing is lost."""
    desk.submit(progress=True)
    desk.requests.take([Counted(key=KEY, units={"n": float(count)}) for count in range(50)])
    assert desk.told == [Progress(key=KEY, units={"n": 0.0})]


def test_progress_is_told_only_to_who_wants_it(desk: Desk) -> None:
    """Nobody listens to most requests: reports of them would cost the caller more than outputs."""
    desk.submit()
    desk.requests.take([Counted(key=KEY, units={"n": 1.0})])
    assert desk.told == []


def test_when_the_caller_goes_every_request_is_forgotten(desk: Desk) -> None:
    """All that the engine holds is cancelled."""
    keys = [Key(rid=name, epoch=7) for name in "ab"]
    for key in keys:
        desk.submit(key)
    desk.commands()
    desk.requests.cancel_all()
    assert desk.commands() == [Forget(key=key) for key in keys]


def test_a_ticket_that_is_no_good_is_still_acknowledged(desk: Desk) -> None:
    """The number of a malformed ticket goes back, and its request fails."""
    desk.submit()
    bad = Chunk(key=KEY, seq=0, number=77, body=b"nonsense", last=True)
    desk.requests.chunk(desk.into, bad, NOTHING)
    assert desk.answers.sent == [(Ack(numbers=(77,)), NOTHING)]
    desk.over(Cancelled(key=KEY))
    assert isinstance(desk.told[0], Failed)
