"""The rules of chunks, as the requests of a stage keep them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stagemesh.runtime.inbox import Append
from stagemesh.runtime.messages import (
    Ack,
    Cancelled,
    Failed,
    Key,
)
from stagemesh.testing.connector_conformance import payload_of
from tests.runtime.desk import KEY, ROOM, Desk, a_desk, finished


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk with one input."""
    yield from a_desk()


@pytest.fixture
def desk_of_two() -> Iterator[Desk]:
    """A desk whose requests are fed by two edges."""
    yield from a_desk(2)


def test_a_second_last_on_one_edge_does_not_stand_for_another(desk_of_two: Desk) -> None:
    """Each edge says its last once; a request whose producer says it twice fails."""
    desk_of_two.submit()
    desk_of_two.feed(payload_of(10), last=True)
    desk_of_two.source.drop(KEY)  # too early: a producer that does not know what it has said
    desk_of_two.feed(payload_of(10), last=True)
    desk_of_two.over(Cancelled(key=KEY))
    (failed,) = desk_of_two.told
    assert isinstance(failed, Failed)
    assert "came after the last" in failed.message


def test_the_last_chunk_goes_although_the_engine_has_forgotten_its_request(desk: Desk) -> None:
    """It waits for room while the engine is done: the request ends when it has gone."""
    desk.submit()
    for _ in range(ROOM):
        desk.say()
    desk.say(last=True)
    desk.over(finished())
    assert desk.told == []
    for chunk in desk.downstream.chunks()[:ROOM]:
        desk.out.acknowledged([chunk.number])
    assert [chunk.last for chunk in desk.downstream.chunks()] == [False] * ROOM + [True]
    assert desk.told == [finished()]


def test_a_request_of_a_later_epoch_begins_anew(desk: Desk) -> None:
    """Sequence numbers belong to a request and its epoch, on either side."""
    desk.submit()
    desk.feed(payload_of(10), last=True)
    desk.cancel_and_close()
    again = Key(rid=KEY.rid, epoch=KEY.epoch + 1)
    desk.submit(again)
    desk.commands()
    desk.feed(payload_of(20), again, last=True)
    (given,) = desk.commands()
    assert isinstance(given, Append)
    assert (given.key, given.payload) == (again, payload_of(20))


def test_a_chunk_of_an_earlier_epoch_is_given_back(desk: Desk) -> None:
    """A request that came again is not given what was meant for the one before."""
    again = Key(rid=KEY.rid, epoch=KEY.epoch + 1)
    desk.submit(again)
    desk.commands()
    desk.feed(payload_of(10))
    assert desk.commands() == []
    assert [type(message) for message, _ in desk.answers.sent] == [Ack]
