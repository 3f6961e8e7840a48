"""What to ask for instead of a value that a plan does not have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.edges import EDGES
from stagemesh.config.fields import StageField, stage_fields
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.schema import StageEntry
from stagemesh.plan.edge_values import CONNECTORS
from stagemesh.plan.provenance import AXES
from stagemesh.plan.subject import STAGES, Record, subject_of
from stagemesh.plan.values import StagePlan
from stagemesh.spec.diagnostic import nearest
from stagemesh.spec.pipeline import ExecutionType

_FILE_ALONE: Final = "it is about a file; what it leads to are values of stages and the pipeline"
_HINTS: Final[Mapping[str, str]] = {
    "base_config": _FILE_ALONE,
    "platforms": _FILE_ALONE,
    "duplex_session": "sessions take turns here, which `session_mode` says",
    EDGES: "the pipeline has one stage, and so no edge",
    AXES: "an axis is asked for by its name below that of a stage, as `STAGE.AXIS`",
    CONNECTORS: "no connector is named; what the edges have is below `edges`",
}
"""What there is instead of values of the pipeline that may be absent as a whole."""
_LISTED: Final = 16
"""Names that are listed; of more, only one that is near."""


def instead_of(what: str, record: Record, catalog: Catalog) -> str:
    """Name the nearest value there is, beside the one asked for rather than elsewhere."""
    what = what.removeprefix(f"{STAGES}.")
    known = set(_known(record, catalog))
    if subject_of(what, record, catalog).path == AXES:
        return _HINTS[AXES]
    for above in _above(what):
        shown = subject_of(above, record, catalog).shown
        below = {_part_below(shown, path) for path in known if path.startswith(f"{shown}.")}
        if below:
            return _one_of(shown, _part_below(above, what), sorted(below))
        if shown in known:
            return f"`{shown}` has no members"
    first = what.partition(".")[0]
    if first in _HINTS:
        return _HINTS[first]
    having = [f"`{name}.{first}`" for name in _stages(record) if f"{name}.{first}" in known]
    if having:
        return f"stages have it: {', '.join(having)}"
    stages = ", ".join(f"`{name}`" for name in _stages(record))
    near = nearest(what, known)
    meant = "" if near is None else f"did you mean `{near}`? "
    return f"{meant}stages of this plan: {stages}"


def _one_of(above: str, got: str, names: Sequence[str]) -> str:
    """Name the nearest of what stands below a path, and all of it where that is little."""
    near = nearest(got, names)
    meant = "" if near is None else f"did you mean `{above}.{near}`?"
    if len(names) > _LISTED:
        return meant or f"none of the `{len(names)}` values below `{above}` is near"
    listed = ", ".join(f"`{name}`" for name in names)
    return f"{meant} below `{above}`: {listed}".lstrip()


def _above(path: str) -> Iterator[str]:
    """Yield the paths around one, the nearest first."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _part_below(above: str, path: str) -> str:
    """Return the next part of a path below another one."""
    return path[len(above) + 1 :].partition(".")[0]


def _known(record: Record, catalog: Catalog) -> Iterator[str]:
    """Yield everything that can be asked for: values, what holds them, fields nobody gave."""
    for path in record.paths:
        if path:
            yield path
            yield from _above(path)
    fields = stage_fields(catalog).values()
    for name in _stages(record):
        stage = record.stages.get(name)
        yield from (f"{name}.{axis}" for axis in catalog.axes)
        yield from (f"{name}.{field.name}" for field in fields if _has(stage, field))


def _has(stage: StagePlan | None, field: StageField) -> bool:
    """Whether a stage has a field by its kind; options of engines are values of their stages."""
    is_ours = field.axis is not None or field.declared_by in (StageEntry, *KIND_FIELDS)
    return is_ours and (stage is None or ExecutionType(stage.execution_type) in field.fits)


def _stages(record: Record) -> Collection[str]:
    return dict.fromkeys(record.names.values())
