"""What a server counts of its requests, as an observer of the system under it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from stagemesh.errors import StagemeshError
from stagemesh.runtime.load import Clock
from stagemesh.runtime.messages import Finished, Hop
from stagemesh.runtime.outputs import OmniOutput
from stagemesh.runtime.running import Seat
from stagemesh.runtime.telemetry import Observer, Outcome
from stagemesh.serve.metric_table import CONTINUITY_MS
from stagemesh.spec.payload import Payload

_AUDIO: Final = "audio"
_SAMPLE_BYTES: Final = 4

Labels = tuple[str, ...]
"""Values of the labels of one series."""


class Playback:
    """How a stream of audio would sound if it were played from its first piece on."""

    def __init__(self, now: float) -> None:
        """The first piece is about to come."""
        self._began = now
        self.duration_s = 0.0
        self.underrun_s = 0.0

    def came(self, seconds: float, now: float) -> None:
        """Another piece, so long."""
        played_s = now - self._began - self.underrun_s
        self.underrun_s += max(played_s - self.duration_s, 0.0)
        self.duration_s += seconds


@dataclass(eq=False, slots=True, kw_only=True)
class _Request:
    """A request that is not over."""

    opened: float
    firsts: set[str] = field(default_factory=set)
    streams: dict[str, Playback] = field(default_factory=dict)


class Meter(Observer):
    """Counts by the names of `metric_table`."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.amounts: Final[dict[str, dict[Labels, float]]] = defaultdict(
            lambda: defaultdict(float)
        )
        self.clocks: Final[dict[str, dict[Labels, Clock]]] = defaultdict(lambda: defaultdict(Clock))
        self._requests: dict[str, _Request] = {}

    def opened(self, request: str) -> None:
        """Begin to count its time."""
        self._requests[request] = _Request(opened=monotonic())

    def refused(self, request: str, outcome: Outcome, error: StagemeshError) -> None:
        """It has failed at once."""
        del request, error
        self._add("requests_failed", outcome.value)

    def begun(self, request: str, seats: object) -> None:
        """It has waited so long."""
        del seats
        self._time("request_queue_wait_s", monotonic() - self._requests[request].opened)

    def output(self, output: OmniOutput, seat: Seat, hop: Hop) -> None:
        """Count what a user was given, and when."""
        live, stage = self._requests[output.request_id], seat.stage
        if stage not in live.firsts:
            live.firsts.add(stage)
            self._time("first_output_latency_s", hop.taken - live.opened, stage)
        self._add("output_chunks", stage)
        self._add("output_size_bytes", stage, amount=hop.num_bytes)
        seconds = audio_seconds(output.kind, output.payload)
        if seconds > 0:
            if stage not in live.streams:
                self._time("audio_ttfp_s", hop.taken - live.opened, stage)
                live.streams[stage] = Playback(hop.taken)
            live.streams[stage].came(seconds, hop.taken)
            self._add("audio_duration_s", amount=seconds)
        if output.final and stage in live.streams:
            self._stream_over(stage, live.streams.pop(stage), hop.taken - live.opened)

    def stage_finished(self, request: str, seat: Seat, finished: Finished) -> None:
        """It has been there so long."""
        del request
        self._time("stage_gen_time_s", finished.seconds, seat.stage, str(seat.replica))

    def ended(self, request: str, outcome: Outcome, error: StagemeshError | None) -> None:
        """Count how, and the time."""
        del error
        live = self._requests.pop(request)
        self._time("e2e_request_latency_s", monotonic() - live.opened)
        if outcome is Outcome.FINISHED:
            self._add("requests_success")
        else:
            self._add("requests_failed", outcome.value)

    def died(self, seat: Seat, reason: str, seconds: float) -> None:
        """Count how long that has taken to be seen."""
        del reason
        self._time("kill_detect_s", seconds, seat.stage)

    def _stream_over(self, stage: str, played: Playback, seconds: float) -> None:
        self._add("audio_streams", stage)
        self._time("audio_underrun_s", played.underrun_s, stage)
        self._time("audio_rtf", seconds / played.duration_s, stage)
        for threshold in CONTINUITY_MS:
            is_ok = played.underrun_s * 1000 <= threshold
            self._add("audio_continuity_ok", stage, str(threshold), amount=float(is_ok))

    def _add(self, name: str, *labels: str, amount: float = 1.0) -> None:
        self.amounts[name][labels] += amount

    def _time(self, name: str, seconds: float, *labels: str) -> None:
        self.clocks[name][labels].add(seconds)


def audio_seconds(kind: str, payload: Payload) -> float:
    """How long an output plays; `0` for what is no audio."""
    rate = payload.meta.get("sampling_rate")
    if kind != _AUDIO or not isinstance(rate, int) or rate < 1:
        return 0.0
    return payload.buffer(_AUDIO).num_bytes / _SAMPLE_BYTES / rate
