"""What stages say about handing over chunks, held against the pipeline and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stagemesh.config.settings import Settings, Sourced, StageSettings
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.pipeline import PipelineConfig

ASYNC_CHUNK: Final = "async_chunk"
"""The field, of a stage as well as of the whole pipeline."""


def chunk_findings(settings: Settings, pipeline: PipelineConfig) -> Iterator[Diagnostic]:
    """Find stages that promise chunks where there are none, and edges whose ends disagree."""
    common = settings.fields.get(ASYNC_CHUNK)
    said = {stage.stage_id: stage for stage in settings.stages}
    able = {stage.stage_id for stage in pipeline.stages if stage.produces_chunks}
    edges = [
        (said[source], said[stage.stage_id])
        for stage in pipeline.stages
        for source in stage.input_sources
        if source in able
    ]
    for stage in settings.stages:
        given = stage.fields.get(ASYNC_CHUNK)
        if given is not None and given.value:
            can = any(stage in edge for edge in edges)
            yield from _promised(stage, given, common, can=can)
    if common is None or common.value:
        for producer, consumer in edges:
            if hands_over_chunks(producer) is not hands_over_chunks(consumer):
                yield _disagree(producer, consumer)


def hands_over_chunks(stage: StageSettings) -> bool:
    """Whether a stage has not been taken out of handing over chunks."""
    given = stage.fields.get(ASYNC_CHUNK)
    return given is None or bool(given.value)


def _promised(
    stage: StageSettings, given: Sourced[object], common: Sourced[object] | None, *, can: bool
) -> Iterator[Diagnostic]:
    if not can:
        yield Diagnostic(
            code="CF037",
            message=f"`{stage.name}` neither hands over nor takes chunks",
            origin=given.origin,
            help=f"leave `{ASYNC_CHUNK}` out",
        )
    elif common is not None and not common.value and common.origin.layer <= given.origin.layer:
        yield Diagnostic(
            code="CF037",
            message=f"`{stage.name}` cannot hand over chunks where the pipeline does not",
            origin=given.origin,
            notes=(
                Note(message="chunks are off for the whole pipeline here", origin=common.origin),
            ),
            help=f"leave `{ASYNC_CHUNK}` out here, or write `true` there",
        )


def _disagree(producer: StageSettings, consumer: StageSettings) -> Diagnostic:
    off, on = (consumer, producer) if hands_over_chunks(producer) else (producer, consumer)
    edge = f"{producer.stage_id} -> {consumer.stage_id}"
    return Diagnostic(
        code="CF036",
        message=f"edge `{edge}` is without chunks at `{off.name}`, and with them at `{on.name}`",
        origin=off.fields[ASYNC_CHUNK].origin,
        help=f"write `{ASYNC_CHUNK}: false` for both, or for none",
    )
