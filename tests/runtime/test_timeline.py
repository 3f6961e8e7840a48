"""The timeline of requests: a file by the rules of its format, whose spans nest and cover."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from stagemesh.errors import StageFailedError
from stagemesh.runtime.timeline import Timeline
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started

pytestmark = pytest.mark.slow
Event = Mapping[str, Any]


@pytest.fixture(scope="module", params=[True, False], ids=["chunks", "whole"])
def events(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> list[Event]:
    """The events of two requests, one of which fails in the talker."""
    path = tmp_path_factory.mktemp("trace") / "out.json"
    timeline = Timeline()
    with Started(fake_plan(three_stages(), chunked=request.param)) as started:
        started.omni.observers.add(timeline)
        started.run("hi")
        with pytest.raises(StageFailedError):
            started.run("no", {"talker": {"fail_at": "step"}})
        started.settle()
    timeline.write(path)
    document = json.loads(path.read_text())
    assert document["displayTimeUnit"] == "ms"
    found: list[Event] = document["traceEvents"]
    return found


def spans(events: list[Event]) -> Iterator[tuple[tuple[int, int], str, int, int]]:
    """All complete spans: row and thread, name, begin, end."""
    for event in events:
        if event["ph"] == "X":
            yield (
                (event["pid"], event["tid"]),
                event["name"],
                event["ts"],
                event["ts"] + event["dur"],
            )


def names(events: list[Event], what: str) -> dict[tuple[int, int], str]:
    """Names of rows or threads."""
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if (event["ph"], event["name"]) == ("M", what)
    }


def test_every_event_has_what_its_phase_demands(events: list[Event]) -> None:
    """Phases, whole times, rows and threads that have names, and pairs by number."""
    rows = {row for row, _ in names(events, "process_name")}
    threads = names(events, "thread_name")
    for event in events:
        assert event["ph"] in {"M", "X", "b", "e", "s", "f"}
        assert event["name"]
        assert event["pid"] in rows
        if event["ph"] == "M":
            continue
        assert (event["pid"], event["tid"]) in threads
        assert isinstance(event["ts"], int)
        assert event["cat"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
        else:
            assert isinstance(event["id"], int)
    for first, second in (("b", "e"), ("s", "f")):
        begun = {event["id"]: event for event in events if event["ph"] == first}
        ended = {event["id"]: event for event in events if event["ph"] == second}
        assert begun.keys() == ended.keys()
        assert all(begun[each]["ts"] <= ended[each]["ts"] for each in begun)


def test_spans_of_a_row_nest(events: list[Event]) -> None:
    """Of two spans of one thread one holds the other, or they do not meet."""
    found = list(spans(events))
    for place, name, began, ended in found:
        for other_place, other_name, other_began, other_ended in found:
            if place != other_place or name == other_name:
                continue
            apart = ended <= other_began or other_ended <= began
            inside = began <= other_began and other_ended <= ended
            around = other_began <= began and ended <= other_ended
            assert apart or inside or around, (name, other_name)


def test_a_request_covers_all_that_was_done_for_it(events: list[Event]) -> None:
    """Every stage has a row with its request, which holds what it waited for and what it ran."""
    rows = {row: name for (row, _), name in names(events, "process_name").items()}
    assert set(rows.values()) == {
        "caller",
        "thinker replica 0",
        "talker replica 0",
        "vocoder replica 0",
    }
    request = next(iter(names(events, "thread_name").values()))
    whole = {
        rows[row]: (began, ended)
        for (row, _), name, began, ended in spans(events)
        if name == request
    }
    assert whole.keys() == set(rows.values())
    began, ended = whole["caller"]
    assert all(began <= first <= last <= ended for first, last in whole.values())
    parts = {(rows[row], name) for (row, _), name, *_ in spans(events)}
    assert {("talker replica 0", "runs"), ("talker replica 0", "waits for input")} <= parts


def test_every_chunk_is_an_arrow_from_its_producer(events: list[Event]) -> None:
    """Three chunks over each edge and to the caller, the prompt, and where each comes from."""
    rows = {row: name.split()[0] for (row, _), name in names(events, "process_name").items()}
    tails = {event["id"]: rows[event["pid"]] for event in events if event["ph"] == "s"}
    heads = {event["id"]: rows[event["pid"]] for event in events if event["ph"] == "f"}
    hops = [(tails[each], heads[each]) for each in tails]
    for edge in (("thinker", "talker"), ("talker", "vocoder"), ("vocoder", "caller")):
        assert hops.count(edge) >= 3, edge
    assert hops.count(("caller", "thinker")) >= 2


def test_the_end_of_a_request_says_how(events: list[Event]) -> None:
    """One finished, one failed with its error."""
    told = [event["args"] for event in events if "outcome" in event.get("args", {})]
    outcomes = [one["outcome"] for one in told]
    assert outcomes[:2] == ["finished", "failed"]
    assert "talker" in told[1]["error"]
