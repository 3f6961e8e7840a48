"""Whether a pipeline is a graph that can be planned; a third party may have declared it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import OUTPUT_TYPES, PipelineConfig, StagePipelineConfig

_Finding: TypeAlias = tuple[str, str, str | None]
"""Code, message and help."""

_OLD_NAMES: Final[Mapping[str, str]] = {
    "speech": "write `audio`",
    "wav": "write `audio`",
    "waveform": "write `audio`",
    "images": "write `image`",
    "pixel_values": "write `image`",
    "pixels": "write `image`",
    "latents": "write `latent`",
    "tokens": "write `text` for text, or `token_ids` for discrete ids",
}
"""Names of output types that others use, and what is meant."""


def topology_findings(pipeline: PipelineConfig) -> tuple[Diagnostic, ...]:
    """Say what is wrong with the stages of a pipeline, naming the model."""
    origin = Origin(layer=Layer.PIPELINE, source=f"pipeline `{pipeline.model_type}`")
    return tuple(
        Diagnostic(code=code, message=message, origin=origin, help=help_text)
        for code, message, help_text in _findings(pipeline)
    )


def _findings(pipeline: PipelineConfig) -> Iterator[_Finding]:
    model, stages = pipeline.model_type, pipeline.stages
    ids = [stage.stage_id for stage in stages]
    if not ids or ids != list(range(len(ids))):
        shown = ", ".join(map(str, ids)) or "none"
        yield "MD014", f"stages of `{model}` must be numbered `0`, `1`, ..., got `{shown}`", None
    else:
        yield from _wrong_sources(pipeline)
    names = [stage.model_stage for stage in stages]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield "MD015", f"`{model}` has two stages called {quoted(name)}", None
    if not any(stage.final_output for stage in stages):
        help_text = "set `final_output` and `final_output_type` of a stage"
        yield "MD017", f"no stage of `{model}` puts anything out to the user", help_text
    for stage in stages:
        if stage.final_output and not stage.final_output_type:
            message = f"the final stage `{stage.model_stage}` of `{model}` names no type"
            yield "MD017", message, "set its `final_output_type`, such as `text`"
        yield from _wrong_type(model, stage)


def _wrong_sources(pipeline: PipelineConfig) -> Iterator[_Finding]:
    """Sources that are no stages or are named twice, and stages that wait for themselves."""
    model, count = pipeline.model_type, len(pipeline.stages)
    sound = True
    for stage in pipeline.stages:
        sources = stage.input_sources
        wrong = [each for each in sources if each not in range(count) or sources.count(each) > 1]
        if wrong:
            sound = False
            message = (
                f"stage `{stage.model_stage}` of `{model}` cannot take input from `{wrong[0]}`"
            )
            yield "MD016", message, f"name each source once; stages go from `0` to `{count - 1}`"
    waiting = {stage.stage_id: set(stage.input_sources) for stage in pipeline.stages}
    while ready := [each for each, sources in waiting.items() if not sources & set(waiting)]:
        for each in ready:
            del waiting[each]
    if waiting and sound:
        names = ", ".join(f"`{pipeline.stages[each].model_stage}`" for each in waiting)
        yield "MD016", f"stages of `{model}` wait for each other: {names}", None


def _wrong_type(model: str, stage: StagePipelineConfig) -> Iterator[_Finding]:
    for part in re.split("[+,]", str(stage.engine_output_type)):
        if part not in OUTPUT_TYPES:
            name = f"stage `{stage.model_stage}` of `{model}`"
            help_text = _OLD_NAMES.get(part.strip().lower()) or did_you_mean(part, OUTPUT_TYPES)
            yield "MD018", f"{name} has no output type {quoted(part)}", help_text
            return
