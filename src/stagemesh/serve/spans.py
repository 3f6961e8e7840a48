"""OpenTelemetry spans: one for each request, below it one for each stage and each edge.

Only the API is used: without an SDK, which is for whoever runs the server to set up, nothing is
recorded and stages keep nothing. Stages need neither: they tell what they did, and spans are made
of it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic_ns, time_ns
from typing import Final

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stagemesh.errors import StagemeshError
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.messages import Hop
from stagemesh.runtime.outputs import OmniOutput
from stagemesh.runtime.running import Seat
from stagemesh.runtime.telemetry import Observer, Outcome, StageMarks

_NANOSECONDS: Final = 1e9
_CALLER: Final = "caller"
_TRACEPARENT: Final = "traceparent"
_propagator: Final = TraceContextTextMapPropagator()


@contextmanager
def continued(headers: Mapping[str, str]) -> Iterator[None]:
    """Let spans that begin here continue the trace that a request bears, if it bears one."""
    lower = {name.lower(): value for name, value in headers.items()}
    token = context.attach(_propagator.extract(lower))
    try:
        yield
    finally:
        context.detach(token)


@dataclass(eq=False, slots=True, kw_only=True)
class _Request:
    """A request that is recorded."""

    span: Span
    seats: Mapping[int, Seat] = field(default_factory=dict)
    hops: dict[str, list[Hop]] = field(default_factory=dict)
    """What came to the caller, by the name of the stage."""


class Spans(Observer):
    """Records the requests of one system."""

    def __init__(self, pipeline: str, provider: TracerProvider | None = None) -> None:
        """Record with the provider of this process unless another is given."""
        self._pipeline = pipeline
        self._tracer: Tracer = trace.get_tracer("stagemesh", tracer_provider=provider)
        self._requests: dict[str, _Request] = {}
        self._since_epoch = time_ns() - monotonic_ns()

    def opened(self, request: str) -> str | None:
        """Begin its span below that of whoever asks; stages tell more if it is recorded."""
        told = {"stagemesh.request_id": request, "stagemesh.pipeline": self._pipeline}
        span = self._tracer.start_span("request", kind=SpanKind.SERVER, attributes=told)
        if not span.is_recording():
            return None
        self._requests[request] = _Request(span=span)
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(span))
        return carrier[_TRACEPARENT]

    def begun(self, request: str, seats: Mapping[int, Seat]) -> None:
        """It leaves the queue."""
        if request in self._requests:
            self._requests[request].seats = seats
            self._requests[request].span.add_event("begun")

    def entered(self, request: str, seats: Mapping[int, Seat]) -> None:
        """More is known of where it goes."""
        if request in self._requests:
            live = self._requests[request]
            live.seats = {**live.seats, **seats}

    def output(self, output: OmniOutput, seat: Seat, hop: Hop) -> None:
        """Keep how it came."""
        if output.request_id in self._requests:
            self._requests[output.request_id].hops.setdefault(seat.stage, []).append(hop)

    def stage_marks(self, request: str, found: StageMarks) -> None:
        """Record the stage, and the edges that feed it."""
        live = self._requests.get(request)
        if live is None:
            return
        marks, seat = found.marks, found.seat
        told: dict[str, str | int | bool] = {
            "stagemesh.stage": seat.stage,
            "stagemesh.replica": seat.replica,
            "stagemesh.same_clock": found.is_near,
        }
        span = self._tracer.start_span(
            f"stage {seat.stage}",
            context=trace.set_span_in_context(live.span),
            attributes=told,
            start_time=self._at(marks.submitted),
        )
        for name, time in (("first input", marks.started), ("engine is done", marks.over)):
            if time is not None:
                span.add_event(name, timestamp=self._at(time))
        for source in sorted({hop.source for hop in marks.hops}):
            name = _CALLER if source == CALLER else live.seats[source].stage
            hops = [hop for hop in marks.hops if hop.source == source]
            self._edge(span, name, seat.stage, hops)
        span.end(self._at(marks.closed))

    def ended(self, request: str, outcome: Outcome, error: StagemeshError | None) -> None:
        """Record how, and end its span; stages may still have something to tell."""
        live = self._requests.get(request)
        if live is None:
            return
        for stage, hops in live.hops.items():
            self._edge(live.span, stage, _CALLER, hops)
        live.span.set_attribute("stagemesh.outcome", outcome.value)
        if error is not None and outcome is not Outcome.CANCELLED:
            live.span.set_status(Status(StatusCode.ERROR, str(error)))
        live.span.end()

    def settled(self, request: str) -> None:
        """Nothing more comes of it."""
        self._requests.pop(request, None)

    def _edge(self, parent: Span, source: str, target: str, hops: Iterable[Hop]) -> None:
        """Record the chunks of one edge, from the first sending to the last taking."""
        found = list(hops)
        sent = min(hop.sent or hop.taken for hop in found)
        span = self._tracer.start_span(
            f"edge {source} -> {target}",
            context=trace.set_span_in_context(parent),
            attributes={
                "stagemesh.source": source,
                "stagemesh.target": target,
                "stagemesh.chunks": len(found),
                "stagemesh.bytes": sum(hop.num_bytes for hop in found),
                "stagemesh.longest_hop_s": max(
                    hop.taken - (hop.sent or hop.taken) for hop in found
                ),
            },
            start_time=self._at(sent),
        )
        span.end(self._at(max(hop.taken for hop in found)))

    def _at(self, seconds: float) -> int:
        """A time of the monotonic clock in nanoseconds since the epoch."""
        return round(seconds * _NANOSECONDS) + self._since_epoch
