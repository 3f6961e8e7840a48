"""Reads a deploy file: how the stages of a pipeline run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stagemesh.config.check import checker, hints, unknown_key, wrong_type
from stagemesh.config.document import Document
from stagemesh.config.entries import read_stage
from stagemesh.config.fields import StageField
from stagemesh.config.patch import Patch, patches_of
from stagemesh.config.place import Place, Run
from stagemesh.config.schema import STAGE_KEY, ConnectorEntry, DeployFile
from stagemesh.config.stages import Stages
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.unset import UNSET

_OLD_STAGES = "stage_args"


def read_deploy(
    document: Document, stages: Stages, fields: Mapping[str, StageField], run: Run
) -> list[Patch]:
    """Read a deploy file into patches; what is wrong goes to `run`."""
    root = Place(located=document)
    patches: list[Patch] = []
    for key, value in document.value.items():
        here = root.child(key)
        if key == "stages":
            patches += _read_stages(value, here, stages, fields, run)
        elif key == "connectors":
            patches += _read_connectors(value, here, run)
        elif key == _OLD_STAGES:
            help_text = (
                "the pipeline itself holds the topology; write `stages:` with a list of"
                ' `{stage_id: 0, devices: "0", ...}`'
            )
            run.tell("CF023", f"`{_OLD_STAGES}` is not read", here.key_origin, help_text)
        elif key not in hints(DeployFile):
            unknown_key(key, root, run, hints(DeployFile))
        else:
            annotation = hints(DeployFile)[str(key)]
            refused = value is not None and checker(annotation)(value, here, run) is UNSET
            given = UNSET if refused else value
            patches += patches_of(None, (str(key),), given, here)
    return patches


def _read_connectors(given: object, place: Place, run: Run) -> Iterator[Patch]:
    if given is None:
        yield Patch(stage_id=None, path=("connectors",), value=None, origin=place.origin)
        return
    if not isinstance(given, Mapping):
        wrong_type(given, place, run, "a mapping from names to connectors")
        return
    for name, entry in given.items():
        here = place.child(name)
        refused = entry is not None and checker(ConnectorEntry)(entry, here, run) is UNSET
        yield from patches_of(None, ("connectors", name), UNSET if refused else entry, here)


def _read_stages(
    given: object, place: Place, stages: Stages, fields: Mapping[str, StageField], run: Run
) -> Iterator[Patch]:
    if given is None:
        return
    if not isinstance(given, tuple):
        wrong_type(given, place, run, "a list of stages")
        return
    seen: dict[int, Place] = {}
    for index, entry in enumerate(given):
        here = place.child(index)
        if not isinstance(entry, Mapping):
            wrong_type(entry, here, run, f"a mapping with `{STAGE_KEY}`")
            continue
        stage_id = _stage_id(entry, here, stages, run)
        label = here.label
        if stage_id is not None:
            if stage_id in seen:
                _tell_twice(stage_id, here, seen[stage_id], run)
            else:
                seen[stage_id] = here
            known = stages.numbered(stage_id)
            label = known.model_stage if known is not None and stages.pipeline else label
        settings = {key: value for key, value in entry.items() if key != STAGE_KEY}
        named = Place(located=here.located, path=here.path, label=label)
        yield from read_stage(settings, named, -1 if stage_id is None else stage_id, fields, run)


def _stage_id(
    entry: Mapping[str | int, object], place: Place, stages: Stages, run: Run
) -> int | None:
    if STAGE_KEY not in entry:
        run.tell("CF011", f"{place.child(STAGE_KEY).name} is missing", place.origin, stages.listed)
        return None
    here = place.child(STAGE_KEY)
    stage_id = checker(int)(entry[STAGE_KEY], here, run)
    if not isinstance(stage_id, int):
        return None
    if stages.numbered(stage_id) is None:
        message = f"no stage {quoted(stage_id)} in this pipeline"
        run.tell("CF020", message, here.origin, stages.listed)
        return None
    return stage_id


def _tell_twice(stage_id: int, place: Place, first: Place, run: Run) -> None:
    run.findings.append(
        Diagnostic(
            code="CF021",
            message=f"stage `{stage_id}` is given twice",
            origin=place.child(STAGE_KEY).origin,
            notes=(Note(message="first given here", origin=first.child(STAGE_KEY).origin),),
            help="put the fields of one stage into one entry",
        )
    )
