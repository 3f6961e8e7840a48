"""Reads what was said for this one start: `--stage-overrides` and the flags for all stages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from stagemesh.config.check import wrong_type
from stagemesh.config.document import Document
from stagemesh.config.entries import read_stage
from stagemesh.config.fields import StageField
from stagemesh.config.patch import Patch
from stagemesh.config.place import Place, Run
from stagemesh.config.stages import Stages
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import Unset

_ID: Final = re.compile("0|[1-9][0-9]{0,8}")


def read_overrides(
    document: Document, stages: Stages, fields: Mapping[str, StageField], run: Run
) -> list[Patch]:
    """Read overrides, keyed by a stage's id as text or by its name; what is wrong goes to `run`."""
    patches: list[Patch] = []
    seen: dict[int, Place] = {}
    root = Place(located=document)
    for key, entry in document.value.items():
        place = root.child(key, label=str(key))
        stage = _find(key, place, stages, run)
        stage_id = -1
        if stage is not None and stages.pipeline is not None:
            stage_id = stage.stage_id
            place = root.child(key, label=stage.model_stage)
            if stage_id in seen:
                _tell_twice(stage, place, seen[stage_id], run)
                continue
            seen[stage_id] = place
        if isinstance(entry, Mapping):
            patches += read_stage(entry, place, stage_id, fields, run)
        else:
            wrong_type(entry, place, run, "a mapping of stage fields")
    return patches


def read_async_chunk(given: object, run: Run) -> list[Patch]:
    """Read the flag `--async-chunk` or `--no-async-chunk`."""
    if isinstance(given, Unset):
        return []
    name = "--no-async-chunk" if given is False else "--async-chunk"
    origin = Origin(layer=Layer.GLOBAL, source=name)
    if not isinstance(given, bool):
        message = f"`async_chunk` must be `true` or `false`, got {quoted(given)}"
        run.tell("CF012", message, origin)
        return []
    return [Patch(stage_id=None, path=("async_chunk",), value=given, origin=origin)]


def _find(key: str | int, place: Place, stages: Stages, run: Run) -> StagePipelineConfig | None:
    if isinstance(key, int):
        help_text = f'write `"{key}"`; {stages.listed}'
        run.tell("CF022", f"stage `{key}` must be given as text", place.key_origin, help_text)
        return None
    stage = stages.numbered(int(key)) if _ID.fullmatch(key) else stages.named(key)
    if stage is None:
        message = f"no stage {quoted(key)} in this pipeline"
        run.tell("CF020", message, place.key_origin, stages.help_for(key))
    return stage


def _tell_twice(stage: StagePipelineConfig, place: Place, first: Place, run: Run) -> None:
    run.findings.append(
        Diagnostic(
            code="CF021",
            message=f"stage `{stage.model_stage}` is given twice, by id and by name",
            origin=place.key_origin,
            notes=(Note(message="first given here", origin=first.key_origin),),
            help="put the fields of one stage under one key",
        )
    )
