"""Every metric that a server exports, as data: `/metrics` and the reference page follow it.

Names and meanings are those of the field where it has any, behind a prefix of our own.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

from stagemesh.spec.frozen import frozen

PREFIX: Final = "stagemesh_"
"""Begins every name."""
CONTINUITY_MS: Final = (0, 100, 500)
"""Gaps in a stream of audio, altogether, up to which it counts as continuous."""


class Kind(Enum):
    """What a metric is."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@frozen
class Metric:
    """One metric."""

    name: str
    """Its name behind the prefix; of a counter without `_total`."""
    kind: Kind
    """What it is."""
    labels: tuple[str, ...]
    """Names of its labels."""
    doc: str
    """What it says."""

    @property
    def full_name(self) -> str:
        """Its name as it is asked for."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is Kind.COUNTER else ''}"


def _rows(kind: Kind, labels: str, docs: dict[str, str]) -> tuple[Metric, ...]:
    names = tuple(labels.split())
    return tuple(Metric(name=name, kind=kind, labels=names, doc=doc) for name, doc in docs.items())


_REPLICA: Final = "stage replica"

HEARD: Final = (
    *_rows(
        Kind.COUNTER,
        "",
        {
            "requests_success": "requests that every stage has finished",
            "audio_duration_s": "seconds of audio that users were given",
        },
    ),
    *_rows(
        Kind.COUNTER,
        "reason",
        {
            "requests_failed": "requests that ended otherwise: `cancelled` by their user,"
            " `deadline`, `invalid`, `overloaded`, `closed`, or `failed` by a stage"
        },
    ),
    *_rows(
        Kind.COUNTER,
        "stage",
        {
            "output_chunks": "outputs that users were given",
            "output_size_bytes": "bytes of those outputs",
            "audio_streams": "streams of audio that have ended",
        },
    ),
    *_rows(
        Kind.COUNTER,
        "stage threshold_ms",
        {
            "audio_continuity_ok": "streams of audio that would have played, from the first piece"
            " on, with gaps of no more than the threshold altogether"
        },
    ),
    *_rows(
        Kind.HISTOGRAM,
        "",
        {
            "request_queue_wait_s": "time from the coming of a request until stages are told of it",
            "e2e_request_latency_s": "time from the coming of a request to its end",
        },
    ),
    *_rows(
        Kind.HISTOGRAM,
        "stage",
        {
            "first_output_latency_s": "time from the coming of a request to the first output of a"
            " final stage at the user",
            "audio_ttfp_s": "the same for the first piece of audio",
            "audio_rtf": "time from the coming of a request to its last audio, per second of audio",
            "audio_underrun_s": "gaps that a user would have heard, all those of one stream",
            "kill_detect_s": "time from the first sign that a replica has ended until its requests"
            " have failed",
        },
    ),
    *_rows(
        Kind.HISTOGRAM,
        _REPLICA,
        {"stage_gen_time_s": "time of a request in a stage, from first input to last output"},
    ),
)
"""What events are counted for."""

ASKED: Final = (
    *_rows(
        Kind.GAUGE,
        "",
        {
            "num_requests_waiting": "requests that wait for room at the first stage",
            "num_requests_running": "requests that some stage holds",
            "loop_lag_s": "how late the server's loop did what was due, when it looked last",
        },
    ),
    *_rows(
        Kind.GAUGE,
        _REPLICA,
        {
            "stage_up": "1 where the replica takes requests",
            "stage_queued_requests": "requests that wait for room there, unseen by the stage;"
            " at the first stage alone",
            "stage_bound_requests": "what is bound to the replica, in units of cost",
            "stage_running_requests": "requests that its engine has begun",
            "stage_waiting_requests": "requests that it holds and has had no input for",
        },
    ),
    *_rows(
        Kind.COUNTER,
        _REPLICA,
        {
            "stage_restarts": "how often the replica was started again",
            "stage_outputs": "outputs of its engine",
        },
    ),
    *_rows(
        Kind.HISTOGRAM,
        _REPLICA,
        {
            "stage_step_s": "time of one step of its engine",
            "stage_first_output_s": "time from the coming of a request there to its first output",
        },
    ),
    *_rows(
        Kind.COUNTER,
        f"{_REPLICA} target",
        {
            "transfer_chunks": "chunks that it has sent to a stage, or to the `caller`",
            "transfer_size_bytes": "bytes of the buffers of those chunks",
            "transfer_credit_wait_s": "time that chunks have waited for room, all of them together",
        },
    ),
    *_rows(
        Kind.GAUGE,
        f"{_REPLICA} target",
        {"transfer_unanswered_chunks": "chunks that the other end has not given back yet"},
    ),
    *_rows(
        Kind.COUNTER,
        f"{_REPLICA} source",
        {
            "transfer_dropped_late": "chunks that came when nobody wanted them any more; what comes"
            " to the caller has the `stage` `caller` and the replica of the source"
        },
    ),
    *_rows(
        Kind.HISTOGRAM,
        f"{_REPLICA} source",
        {"transfer_in_flight_s": "time from the sending of a chunk to its taking, on one host"},
    ),
)
"""What is asked for when somebody looks; a replica that was started again counts from 0."""

SESSIONS: Final = (
    *_rows(
        Kind.GAUGE,
        "state",
        {
            "sessions": "full-duplex sessions that are `opening`, `open` or `closing`; each of them"
            " holds a place"
        },
    ),
    *_rows(
        Kind.COUNTER, "", {"sessions_opened": "full-duplex sessions that every stage has opened"}
    ),
    *_rows(
        Kind.COUNTER,
        "reason",
        {
            "sessions_refused": "full-duplex sessions that found no place (`resource_exhausted`)"
            " and turns that found no room in theirs (`input_backpressure`)",
            "sessions_ended": "full-duplex sessions that are over: closed by their `client`, `idle`"
            " or `disconnected` for too long, `failed` with a replica, or at `shutdown`",
        },
    ),
)
"""What is asked for where the plan has full-duplex sessions."""

METRICS: Final = (*HEARD, *ASKED, *SESSIONS)
"""All of them."""

FRONTENDS: Final = (
    *_rows(
        Kind.GAUGE, "frontend", {"frontend_up": "1 where the frontend serves; of several alone"}
    ),
    *_rows(
        Kind.COUNTER,
        "frontend",
        {"frontend_restarts": "how often the frontend was started again; of several alone"},
    ),
)
"""What the parent of several frontends counts of each."""
OF_SEVERAL: Final = (
    *FRONTENDS,
    *(replace(metric, labels=("frontend", *metric.labels)) for metric in METRICS),
)
"""What a server with several frontends exports: each counts for itself, and nothing is added up."""
