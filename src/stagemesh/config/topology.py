"""Whether a pipeline is a graph that can be planned; a third party may have declared it.

Everything is found at once, and nothing twice: where the stages cannot be counted, nothing is said
about what leads where.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from stagemesh.config.catalog import Catalog
from stagemesh.config.fields import usual_names
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

_YAML_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null"})
"""Words that are no text when they stand in a file without quotes."""

_PIPELINE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?<!\.yaml)", re.ASCII)


def topology_findings(
    pipeline: PipelineConfig, catalog: Catalog, fields: Collection[str]
) -> tuple[Diagnostic, ...]:
    """Say what is wrong with a pipeline, naming it; `fields` are the names of stage fields."""
    origin = Origin(layer=Layer.PIPELINE, source=f"pipeline `{pipeline.model_type}`")
    found = [
        *_wrong_names(pipeline),
        *_wrong_graph(pipeline),
        *_wrong_ends(pipeline),
        *(each for stage in pipeline.stages for each in _wrong_stage(pipeline.model_type, stage)),
        *_wrong_aliases(pipeline, fields),
        *(each for stage in pipeline.stages for each in _wrong_lacks(pipeline, stage, catalog)),
        *_wrong_variant(pipeline, catalog),
    ]
    return tuple(
        Diagnostic(code=code, message=message, origin=origin, help=help_text)
        for code, message, help_text in found
    )


# --- names ---------------------------------------------------------------------------------------


def _wrong_names(pipeline: PipelineConfig) -> Iterator[_Finding]:
    """Names that cannot be written in files and flags, or mean two things."""
    model = pipeline.model_type
    if not _PIPELINE_NAME.fullmatch(model):
        help_text = "begin with a letter; letters, digits, `_`, `.` and `-` may follow"
        yield "MD015", f"{quoted(model)} cannot be the name of a pipeline", help_text
    deploy = pipeline.default_deploy_config_name
    if not _FILE_NAME.fullmatch(deploy):
        help_text = "give the name of a file in the model's `deploy` folder, without `.yaml`"
        yield "MD025", f"`{model}` cannot ship a deploy file called {quoted(deploy)}", help_text
    names = [stage.model_stage for stage in pipeline.stages]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield "MD015", f"`{model}` has two stages called {quoted(name)}", None
        if not (name.isascii() and name.isidentifier()) or name.lower() in _YAML_WORDS:
            help_text = (
                "begin with a letter, go on with letters, digits and `_`, and take no word"
                " that YAML reads as something else"
            )
            yield "MD015", f"a stage of `{model}` cannot be called {quoted(name)}", help_text


# --- the graph -----------------------------------------------------------------------------------


def _wrong_graph(pipeline: PipelineConfig) -> Iterator[_Finding]:
    """Numbers with gaps, sources that are no stages, circles, and stages that lead nowhere."""
    model, stages = pipeline.model_type, pipeline.stages
    ids = [stage.stage_id for stage in stages]
    if not ids or ids != list(range(len(ids))):
        shown = ", ".join(map(str, ids)) or "none"
        yield "MD014", f"stages of `{model}` must be numbered `0`, `1`, ..., got `{shown}`", None
        return
    unsound = list(_wrong_sources(pipeline))
    yield from unsound
    if unsound:
        return
    circle = _circle(pipeline)
    if circle:
        names = ", ".join(f"`{stages[each].model_stage}`" for each in circle)
        yield "MD016", f"stages of `{model}` wait for each other: {names}", _entry_help(pipeline)
    used = {source for stage in stages for source in stage.input_sources}
    if any(stage.final_output for stage in stages):
        for stage in stages:
            if stage.stage_id not in used and not stage.final_output:
                help_text = "name it in `input_sources` of another stage, or set `final_output`"
                message = f"the output of stage `{stage.model_stage}` of `{model}` goes nowhere"
                yield "MD017", message, help_text


def _wrong_sources(pipeline: PipelineConfig) -> Iterator[_Finding]:
    """Sources that are no stages, the stage itself, or named twice."""
    model, count = pipeline.model_type, len(pipeline.stages)
    for stage in pipeline.stages:
        name, sources = f"stage `{stage.model_stage}` of `{model}`", stage.input_sources
        wrong = [each for each in sources if each not in range(count) or sources.count(each) > 1]
        if wrong:
            help_text = f"name each source once; stages go from `0` to `{count - 1}`"
            yield "MD016", f"{name} cannot take input from `{wrong[0]}`", help_text
        elif stage.stage_id in sources:
            yield "MD016", f"{name} takes input from itself", "remove it from `input_sources`"


def _circle(pipeline: PipelineConfig) -> list[int]:
    """Return the stages on circles: what is left when ends are taken away again and again."""
    left = {stage.stage_id: set(stage.input_sources) for stage in pipeline.stages}
    while ends := [
        each
        for each, sources in left.items()
        if not sources & set(left) or not any(each in others for others in left.values())
    ]:
        for each in ends:
            del left[each]
    return list(left)


def _entry_help(pipeline: PipelineConfig) -> str | None:
    if all(stage.input_sources for stage in pipeline.stages):
        return "no stage is the entry: one of them needs empty `input_sources`"
    return None


# --- ends and stages -----------------------------------------------------------------------------


def _wrong_ends(pipeline: PipelineConfig) -> Iterator[_Finding]:
    """No final output, or one without its type."""
    model = pipeline.model_type
    if not any(stage.final_output for stage in pipeline.stages):
        help_text = "set `final_output` and `final_output_type` of a stage"
        yield "MD017", f"no stage of `{model}` puts anything out to the user", help_text
    for stage in pipeline.stages:
        kind = stage.final_output_type
        if stage.final_output and not (kind and kind.isidentifier()):
            what = "names no type" if kind is None else f"cannot have the type {quoted(kind)}"
            message = f"the final stage `{stage.model_stage}` of `{model}` {what}"
            yield "MD017", message, "set its `final_output_type`, such as `text`"
        elif kind is not None and not stage.final_output:
            message = f"stage `{stage.model_stage}` of `{model}` has a final type but is not final"
            yield "MD017", message, "set its `final_output`, or leave `final_output_type` out"


def _wrong_stage(model: str, stage: StagePipelineConfig) -> Iterator[_Finding]:
    """An output type that nobody knows, and folders outside the checkpoint."""
    name = f"stage `{stage.model_stage}` of `{model}`"
    for part in stage.output_types:
        if part not in OUTPUT_TYPES:
            help_text = _OLD_NAMES.get(part.strip().lower()) or did_you_mean(part, OUTPUT_TYPES)
            yield "MD018", f"{name} has no output type {quoted(part)}", help_text
            break
    for folder in (stage.model_subdir, *stage.weight_folders):
        path = PurePosixPath(folder)
        if not folder or path.is_absolute() or ".." in path.parts:
            help_text = "give a folder inside the checkpoint, or `.` for the checkpoint itself"
            yield "MD025", f"{name} cannot have its weights in {quoted(folder)}", help_text


# --- what refers to others -----------------------------------------------------------------------


def _wrong_aliases(pipeline: PipelineConfig, fields: Collection[str]) -> Iterator[_Finding]:
    """Aliases that mean no field of no stage; one may stand for a field of another meaning."""
    model = pipeline.model_type
    for alias, (stage, field) in pipeline.stage_cli_aliases.items():
        if pipeline.stage(stage) is None:
            names = [each.model_stage for each in pipeline.stages]
            message = f"alias {quoted(alias)} of `{model}` means no stage {quoted(stage)}"
            yield "MD023", message, did_you_mean(stage, names)
        elif field not in fields:
            message = f"alias {quoted(alias)} of `{model}` means no stage field {quoted(field)}"
            yield "MD023", message, did_you_mean(field, fields)


def _wrong_lacks(
    pipeline: PipelineConfig, stage: StagePipelineConfig, catalog: Catalog
) -> Iterator[_Finding]:
    """Names of fields and parameters that such a stage never has: each would be lost in silence."""
    if not stage.lacks:
        return
    who = f"stage `{stage.model_stage}` of `{pipeline.model_type}`"
    known = usual_names(stage.execution_type, catalog)
    for name in stage.lacks:
        if name not in known:
            message = f"{who} cannot lack {quoted(name)}, which no such stage has"
            yield "MD037", message, did_you_mean(name, known)


def _wrong_variant(pipeline: PipelineConfig, catalog: Catalog) -> Iterator[_Finding]:
    """A variant of no pipeline, or of another variant."""
    model, base = pipeline.model_type, pipeline.variant_of
    if base is None:
        return
    whole = [each.pipeline for each in catalog.models if each.pipeline.variant_of is None]
    if base not in {each.model_type for each in whole}:
        names = [each.model_type for each in whole]
        message = f"`{model}` is a variant of {quoted(base)}, which is no whole pipeline"
        yield "MD024", message, did_you_mean(base, names)
