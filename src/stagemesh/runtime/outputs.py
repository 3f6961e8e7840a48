"""What the caller gets: outputs as they appear, progress, and the result with its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum

from stagemesh.runtime.audio import Audio
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload


@frozen
class OmniOutput:
    """One output of a final stage."""

    request_id: str
    """The request."""
    stage: str
    """Name of the stage."""
    kind: str
    """Modality, such as `text` or `audio`."""
    payload: Payload
    """All of it, in memory of its own, which begins anywhere."""
    final: bool
    """Whether it is the last of this stage."""

    @property
    def text(self) -> str | None:
        """The piece of text, or `None` when this is something else."""
        text = self.payload.meta.get("text")
        return text if self.kind == "text" and isinstance(text, str) else None

    @property
    def audio(self) -> Audio | None:
        """The piece of audio, or `None` when this is something else."""
        rate = self.payload.meta.get("sampling_rate")
        if self.kind != "audio" or not isinstance(rate, int):
            return None
        return Audio(samples=bytes(self.payload.buffer("audio").data), sampling_rate=rate)


class StageState(Enum):
    """Where a request stands in one stage."""

    WAITING = "waiting"
    """It has said nothing yet."""
    RUNNING = "running"
    """It has put something out."""
    FINISHED = "finished"
    """It is done."""
    FAILED = "failed"
    """It failed."""


@frozen
class StageProgress:
    """News of one request in one stage."""

    request_id: str
    """The request."""
    stage: str
    """Name of the stage."""
    replica: int
    """Replica that serves it."""
    state: StageState
    """Where it stands."""
    units: Mapping[str, float]
    """What was done so far, such as `{"tokens": 12}`."""


@frozen
class StageReport:
    """What one stage did, for one request or for several together."""

    stage: str
    """Name of the stage."""
    replicas: tuple[int, ...]
    """Replicas that served, in ascending order."""
    num_requests: int
    """Requests served."""
    seconds: float
    """Time from first input to last output, all requests added up."""
    first_output_s: float | None
    """Time from submission to the first output, the mean over requests; `None` without output."""
    units: Mapping[str, float]
    """Amounts, such as `{"tokens": 96}` or `{"audio_s": 5.2}`."""

    @classmethod
    def together(cls, reports: Iterable[StageReport]) -> tuple[StageReport, ...]:
        """Add up the reports of several requests, stage by stage, in the order of the stages."""
        by_stage: dict[str, list[StageReport]] = {}
        for report in reports:
            by_stage.setdefault(report.stage, []).append(report)
        return tuple(cls._sum(stage, found) for stage, found in by_stage.items())

    @classmethod
    def _sum(cls, stage: str, reports: list[StageReport]) -> StageReport:
        units: dict[str, float] = {}
        for report in reports:
            for name, amount in report.units.items():
                units[name] = units.get(name, 0.0) + amount
        firsts = [
            (report.first_output_s, report.num_requests)
            for report in reports
            if report.first_output_s is not None
        ]
        weight = sum(count for _, count in firsts)
        return cls(
            stage=stage,
            replicas=tuple(sorted({index for report in reports for index in report.replicas})),
            num_requests=sum(report.num_requests for report in reports),
            seconds=sum(report.seconds for report in reports),
            first_output_s=sum(first * count for first, count in firsts) / weight
            if weight
            else None,
            units=units,
        )


@frozen
class OmniResult:
    """Everything that one request gave."""

    request_id: str
    """The request."""
    text: str | None
    """All text, or `None` when no stage gave any."""
    audio: Audio | None
    """All audio, or `None` when no stage gave any."""
    outputs: tuple[OmniOutput, ...] = field(repr=False)
    """The outputs as they appeared."""
    report: tuple[StageReport, ...]
    """What each stage did, by ascending stage id."""
    seconds: float
    """Time from submission to the end."""
    first_output_s: Mapping[str, float]
    """Time from submission to the first output at the caller, by final stage."""

    @property
    def first_audio_s(self) -> float | None:
        """Time from submission to the first audio at the caller."""
        stages = [output.stage for output in self.outputs if output.audio is not None]
        return self.first_output_s[stages[0]] if stages else None
