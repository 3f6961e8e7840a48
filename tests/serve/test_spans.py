"""Spans of requests: a tree over all stages and edges, below the trace that a request bears."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, StatusCode

from stagemesh.errors import StageFailedError
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.serve.spans import Spans, continued
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
HEADERS = {"Traceparent": f"00-{TRACE}-{PARENT}-01"}


class Recorded:
    """A system whose spans are kept."""

    def __init__(self, started: Started) -> None:
        """Record from now on."""
        self.started = started
        self._kept = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        started.omni.observers.add(Spans("fakes", provider))

    def forget(self) -> None:
        """Keep nothing of what was before."""
        self._kept.clear()

    def spans(self) -> dict[str, ReadableSpan]:
        """What has ended since then, by name."""
        return {span.name: span for span in self._kept.get_finished_spans()}


@pytest.fixture(scope="module", params=[True, False], ids=["chunks", "whole"])
def recorded(request: pytest.FixtureRequest) -> Iterator[Recorded]:
    """Three stages."""
    with Started(fake_plan(three_stages(), chunked=request.param)) as started:
        yield Recorded(started)


async def ask(omni: AsyncOmni) -> None:
    """Ask as a server does, with the headers of a client that traces."""
    with continued(HEADERS):
        running = omni.submit("hi")
    await running.result()


@pytest.mark.slow
def test_a_request_is_a_tree_below_the_trace_of_its_client(recorded: Recorded) -> None:
    """The request, a span for each stage below it, and one for each edge below its consumer."""
    recorded.forget()
    recorded.started.call(ask(recorded.started.omni))
    found = recorded.spans()
    parents = {
        "stage thinker": "request",
        "stage talker": "request",
        "stage vocoder": "request",
        "edge caller -> thinker": "stage thinker",
        "edge thinker -> talker": "stage talker",
        "edge talker -> vocoder": "stage vocoder",
        "edge thinker -> caller": "request",
        "edge vocoder -> caller": "request",
    }
    assert found.keys() == parents.keys() | {"request"}
    assert {f"{span.context.trace_id:032x}" for span in found.values() if span.context} == {TRACE}
    request = found["request"]
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT
    for name, parent in parents.items():
        below, above = found[name].parent, found[parent].context
        assert below is not None
        assert above is not None
        assert below.span_id == above.span_id, name
        start, end = found[name].start_time, found[name].end_time
        assert start is not None
        assert end is not None
        assert start <= end
    attributes = found["edge talker -> vocoder"].attributes
    assert attributes is not None
    assert attributes["stagemesh.chunks"] == 3
    assert attributes["stagemesh.bytes"] == 120_000


@pytest.mark.slow
def test_a_failure_is_an_error_of_its_request(recorded: Recorded) -> None:
    """Its span says which stage failed; the stages have spans all the same."""
    recorded.forget()
    with pytest.raises(StageFailedError):
        recorded.started.run("no", {"talker": {"fail_at": "step"}})
    recorded.started.call(
        recorded.started.until(lambda: not recorded.started.omni.measures().traffic.num_begun)
    )
    found = recorded.spans()
    request = found["request"]
    assert request.status.status_code is StatusCode.ERROR
    assert "talker" in (request.status.description or "")
    assert request.attributes is not None
    assert request.attributes["stagemesh.outcome"] == "failed"
    assert {"stage thinker", "stage talker"} <= found.keys()


def test_without_an_sdk_nothing_is_recorded_and_stages_keep_nothing() -> None:
    """Whoever traces elsewhere is not asked for; all events pass."""
    spans = Spans("fakes", NoOpTracerProvider())
    with continued(HEADERS):
        assert spans.opened("r") is None
    spans.begun("r", {})
    spans.entered("r", {})
    spans.settled("r")


def test_headers_that_are_no_trace_begin_a_new_one() -> None:
    """Nonsense and absence are the same; the context is as it was afterwards."""

    async def opened(headers: dict[str, str]) -> str | None:
        with continued(headers):
            return Spans("fakes", TracerProvider()).opened("r")

    for headers in ({}, {"traceparent": "nonsense"}, {"traceparent": "00-0-0-00"}):
        found = asyncio.run(opened(headers))
        assert found is not None
        assert TRACE not in found
    assert TRACE in (asyncio.run(opened(HEADERS)) or "")
