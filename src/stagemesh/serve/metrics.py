"""`GET /metrics`: what a server counts and what its stages have told, for Prometheus.

Everything belongs to one server; nothing is registered anywhere else. Values are put together when
somebody looks, from what is there anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from stagemesh.runtime.health import ReplicaHealth, ReplicaState
from stagemesh.runtime.load import BUCKETS_S, CALLER, InLoad, OutLoad, Times
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.session import SessionCounts
from stagemesh.runtime.telemetry import Measures
from stagemesh.serve.meter import Labels, Meter
from stagemesh.serve.metric_table import METRICS, PREFIX, Kind, Metric

_CALLER: Final = "caller"
_BOUNDS: Final = (*map(str, BUCKETS_S), "+Inf")

Value: TypeAlias = float | Times
"""What one series says."""
Sample: TypeAlias = tuple[str, Labels, Value]
"""A metric's name, the values of its labels, and the value."""
_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Metrics:
    """The metrics of one system."""

    def __init__(self, omni: AsyncOmni) -> None:
        """Listen to `omni` from now on."""
        self._omni = omni
        self._meter = Meter()
        omni.observers.add(self._meter)

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return everything in the form that `accept` asks for, with its content type."""
        return page_of(METRICS, self.samples(), accept)

    def samples(self) -> Iterator[Sample]:
        """What there is of each metric now."""
        for name, amounts in self._meter.amounts.items():
            yield from ((name, labels, amount) for labels, amount in amounts.items())
        for name, clocks in self._meter.clocks.items():
            yield from ((name, labels, clock.times) for labels, clock in clocks.items())
        measures, names = self._omni.measures(), _names(self._omni)
        yield from _system(measures, names)
        for stage in self._omni.health().stages:
            for replica in stage.replicas:
                yield from _replica(stage.stage, replica, names)


def page_of(metrics: Sequence[Metric], samples: Iterable[Sample], accept: str) -> tuple[bytes, str]:
    """Return samples of `metrics` in the form that `accept` asks for, with its content type."""
    registry = CollectorRegistry()
    registry.register(_Collector(metrics, samples))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collector(Collector):
    """Samples that were put together for one page."""

    def __init__(self, metrics: Sequence[Metric], samples: Iterable[Sample]) -> None:
        self._metrics = metrics
        self._found: dict[str, dict[Labels, Value]] = {metric.name: {} for metric in metrics}
        for name, labels, value in samples:
            self._found[name][labels] = value

    def collect(self) -> Iterator[_Family]:
        """Put all metrics together."""
        for metric in self._metrics:
            family = _family(metric)
            for labels, value in self._found[metric.name].items():
                _add(family, labels, value)
            yield family


def _names(omni: AsyncOmni) -> Mapping[int, str]:
    return {stage.stage_id: stage.name for stage in omni.plan.stages} | {CALLER: _CALLER}


def _system(measures: Measures, names: Mapping[int, str]) -> Iterator[Sample]:
    traffic = measures.traffic
    yield "num_requests_waiting", (), traffic.num_queued
    yield "num_requests_running", (), traffic.num_begun
    yield "loop_lag_s", (), measures.loop_lag_s
    for name, stages in (
        ("stage_queued_requests", traffic.queued),
        ("stage_bound_requests", traffic.bound),
    ):
        for stage, replicas in stages.items():
            for replica, count in replicas.items():
                yield name, (names[stage], str(replica)), count
    yield from _sessions(measures.sessions)
    for where, counts in measures.counts.items():
        if where.stage in names:
            yield from _transfers(_CALLER, str(where.replica), counts.outs, counts.ins, names)


def _sessions(counts: SessionCounts) -> Iterator[Sample]:
    for state, count in counts.states.items():
        yield "sessions", (state,), count
    if counts.states:
        yield "sessions_opened", (), counts.opened
    for name, reasons in (("sessions_refused", counts.refused), ("sessions_ended", counts.ended)):
        for reason, count in reasons.items():
            yield name, (reason,), count


def _replica(stage: str, replica: ReplicaHealth, names: Mapping[int, str]) -> Iterator[Sample]:
    labels, load = (stage, str(replica.replica)), replica.trail.load
    yield "stage_up", labels, float(replica.state is ReplicaState.SERVING)
    yield "stage_restarts", labels, replica.num_restarts
    yield "stage_running_requests", labels, load.running
    yield "stage_waiting_requests", labels, load.waiting
    yield "stage_outputs", labels, load.outputs
    yield "stage_step_s", labels, load.steps
    yield "stage_first_output_s", labels, load.first_outputs
    yield from _transfers(*labels, load.outs, load.ins, names)


def _transfers(
    stage: str,
    replica: str,
    outs: Iterable[OutLoad],
    ins: Iterable[InLoad],
    names: Mapping[int, str],
) -> Iterator[Sample]:
    for out in outs:
        labels = (stage, replica, names.get(out.target, str(out.target)))
        yield "transfer_chunks", labels, out.chunks
        yield "transfer_size_bytes", labels, out.num_bytes
        yield "transfer_credit_wait_s", labels, out.wait_s
        yield "transfer_unanswered_chunks", labels, out.unanswered
    for each in ins:
        labels = (stage, replica, names.get(each.source, str(each.source)))
        yield "transfer_dropped_late", labels, each.dropped
        yield "transfer_in_flight_s", labels, each.hops


def _family(metric: Metric) -> _Family:
    name = f"{PREFIX}{metric.name}"
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(name, metric.doc, labels=metric.labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(name, metric.doc, labels=metric.labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(name, metric.doc, labels=metric.labels)


def _add(family: _Family, labels: Labels, value: Value) -> None:
    if isinstance(family, HistogramMetricFamily):
        assert isinstance(value, Times), "times alone are histograms"
        counts = accumulate(value.buckets)
        buckets = [(bound, float(count)) for bound, count in zip(_BOUNDS, counts, strict=True)]
        family.add_metric(labels, buckets, value.total_s)
    else:
        assert not isinstance(value, Times), "times are histograms"
        family.add_metric(labels, value)
