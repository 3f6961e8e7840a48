"""Reads what was said of single stages for this one start: `--stage-overrides` and `--set`.

Both write the same layer: `--set A.B.C=V` is `--stage-overrides '{"A": {"B": {"C": V}}}'`. Since
neither comes before the other, one path with two values is an error.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from stagemesh.config.check import hints, wrong_type
from stagemesh.config.document import Document, Source, read_yaml
from stagemesh.config.patch import Patch
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.schema import STAGE_KEY, DeployFile, StrategyFile
from stagemesh.config.scope import Scope
from stagemesh.config.stages import Stages
from stagemesh.config.tree import Path, leading_zero, path_text, quoted
from stagemesh.config.typed_entry import read_typed_entry
from stagemesh.config.yaml_core import is_ambiguous
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import UNSET

Entry: TypeAlias = tuple[StagePipelineConfig | None, Place, object]
"""A stage, the place of what was said about it, and that; no stage where the key names none."""

_ID: Final = re.compile("0|[1-9][0-9]{0,8}")
_HIDDEN: Final = ("axes", "options")
"""Parts of a path that nobody writes."""
_OF_FILES: Final = frozenset({STAGE_KEY, *hints(DeployFile), *hints(StrategyFile)})
"""Keys that files have where here the names of stages stand."""
_UNKNOWN_KEY: Final = "CF010"
"""Told of a path once: where there is no such stage, its field is not looked at as well."""
_FORM: Final = "write `STAGE.FIELD=VALUE`, such as `--set thinker.max_num_seqs=4`"


def read_overrides(document: Document, scope: Scope, run: Run) -> list[Patch]:
    """Read overrides, keyed by a stage's id as text or by its name; what is wrong goes to `run`."""
    patches: list[Patch] = []
    for stage, place, entry in by_stage(document.value, Place(located=document), scope, run):
        if isinstance(entry, Mapping):
            patches += read_typed_entry(entry, place, stage, scope, run)
        elif stage is not None:
            wrong_type(entry, place, run, "a mapping of stage fields")
    return patches


def by_stage(
    value: Mapping[str | int, object], root: Place, scope: Scope, run: Run
) -> Iterator[Entry]:
    """Go through what was said by stage; a stage that is named twice is told and given once."""
    stages = scope.stages
    seen: dict[int, Place] = {}
    for key, entry in value.items():
        place = root.child(key, label=str(key))
        stage = find_stage(key, place, stages, run)
        if stage is None and key in _OF_FILES:
            continue  # what stands below it is no entry of a stage
        if stage is not None and stages.pipeline is not None:
            place = root.child(key, label=stage.model_stage)
            if stage.stage_id in seen:
                _tell_twice(stage, place, seen[stage.stage_id], run)
                continue
            seen[stage.stage_id] = place
        yield stage, place, entry


def read_set(text: str, scope: Scope, run: Run) -> list[Patch]:
    """Read one `STAGE.PATH=VALUE`.

    The value is YAML; where it would be a number or a constant and the field takes text, it is the
    text that was typed. Where it may be both, a number with a zero in front is refused as in files.
    """
    source = f"--set {text}"
    path, sign, typed = text.partition("=")
    names = path.split(".")
    origin = Origin(layer=Layer.STAGE, source=source)
    if not sign or not typed or len(names) < 2 or not all(names):  # noqa: PLR2004  stage and field
        lacks = "value" if sign and not typed else "path" if sign else "`=`"
        run.tell("CF066", f"`--set` {quoted(text)} has no {lacks}", origin, _FORM)
        return []
    value = typed if is_ambiguous(typed) else _yaml_value(typed, source, run)
    place = Place(located=Nowhere(source=source)).child(names[0], label=names[0])
    stage = find_stage(names[0], place, scope.stages, run)
    if stage is None and names[0] in _OF_FILES:
        return []
    if stage is not None and scope.stages.pipeline is not None:
        place = dataclasses.replace(place, label=stage.model_stage)

    def attempt(given: object) -> tuple[list[Patch], Run]:
        tried = Run(partial=True)
        entry = _nested(names[1:], given)
        return list(read_typed_entry(entry, place, stage, scope, tried)), tried

    patches, tried = attempt(value)
    if is_ambiguous(typed):
        is_text = not tried.findings
        if not is_text or not attempt(int(typed))[1].findings:  # it could be meant as a number
            message, remedy = leading_zero(typed, may_be_text=is_text)
            value = run.tell("CF005", message, origin, remedy)
            patches, tried = attempt(value)
    if tried.findings and isinstance(value, int | float):
        as_text, second = attempt(typed)
        patches, tried = (as_text, second) if not second.findings else (patches, tried)
    run.findings.extend(
        found for found in tried.findings if stage is not None or found.code != _UNKNOWN_KEY
    )
    return patches


def _yaml_value(text: str, source: str, run: Run) -> object:
    """Read a YAML value; `UNSET` when it is none."""
    findings: list[Diagnostic] = []
    where = Source(name=source, layer=Layer.STAGE)
    document = read_yaml(f"value: {text}", where, findings)
    origin = Origin(layer=Layer.STAGE, source=source)
    run.findings.extend(dataclasses.replace(found, origin=origin) for found in findings)
    if document is not None and len(document.value) > 1:
        return run.tell("CF002", "not valid YAML: more than one value", origin)
    return UNSET if document is None else document.value["value"]


def _nested(names: list[str], value: object) -> dict[str | int, object]:
    name, *inner = names
    return {name: _nested(inner, value) if inner else value}


def known_stage(key: str | int, stages: Stages) -> StagePipelineConfig | None:
    """Return the stage with that name, or with that number as text."""
    if isinstance(key, int):
        return None
    return stages.numbered(int(key)) if _ID.fullmatch(key) else stages.named(key)


def find_stage(
    key: str | int, place: Place, stages: Stages, run: Run
) -> StagePipelineConfig | None:
    """Return the stage with that name or number; tell when there is none."""
    stage = known_stage(key, stages)
    if isinstance(key, int):
        help_text = f'write `"{key}"`; {stages.listed}'
        run.tell("CF022", f"stage `{key}` must be given as text", place.key_origin, help_text)
    elif stage is None:
        message = f"no stage {quoted(key)} in this pipeline"
        help_text = stages.help_for(key)
        if key in _OF_FILES:
            help_text = f"a key here is the name or the number of a stage; {stages.listed}"
        run.tell("CF020", message, place.key_origin, help_text)
    return stage


def agreeing(patches: Iterable[Patch], stages: Stages, run: Run) -> list[Patch]:
    """Return the patches of one layer but for those that contradict an earlier one.

    What contradicts in the same way at several stages is told once.
    """
    if stages.pipeline is None:
        return list(patches)  # all stages are one, as far as can be told
    first: dict[tuple[int | None, Path], Patch] = {}
    told: set[tuple[Path, str, str]] = set()
    contradicted: set[tuple[int | None, Path]] = set()
    agreed: list[Patch] = []
    for patch in patches:
        depths = range(1, len(patch.path) + 1)
        if any((patch.stage_id, patch.path[:depth]) in contradicted for depth in depths):
            continue
        before = first.setdefault((patch.stage_id, patch.path), patch)
        if before.value == patch.value or UNSET in (before.value, patch.value):
            agreed.append(patch)
        else:
            contradicted.add((patch.stage_id, patch.path))
            places = (patch.path, patch.origin.source, before.origin.source)
            if places not in told:
                _tell_contradiction(patch, before, stages, run)
            told.add(places)
    return agreed


def _tell_contradiction(patch: Patch, before: Patch, stages: Stages, run: Run) -> None:
    stage = stages.numbered(-1 if patch.stage_id is None else patch.stage_id)
    inside = tuple(part for part in patch.path if part not in _HIDDEN)
    name = path_text((stage.model_stage, *inside) if stage is not None else inside)
    run.findings.append(
        Diagnostic(
            code="CF067",
            message=f"{quoted(name, 60)} is {_shown(patch.value)} here and {_shown(before.value)}"
            " elsewhere",
            origin=patch.origin,
            notes=(Note(message=f"it is {_shown(before.value)} here", origin=before.origin),),
            help="both write the same layer, so neither wins; leave one of them out",
        )
    )


def _shown(value: object) -> str:
    return "a mapping" if isinstance(value, Mapping) else quoted(value)


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
