"""What to ask for instead of a value that a plan does not have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import hints
from stagemesh.config.edges import EDGES
from stagemesh.config.fields import StageField, stage_fields
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.schema import DeployFile, StageEntry
from stagemesh.plan.edge_values import CONNECTORS
from stagemesh.plan.explain_planned import OF_PLANS, OF_STAGES
from stagemesh.plan.explain_wide import FILE_ALONE
from stagemesh.plan.provenance import AXES
from stagemesh.plan.subject import STAGES, Record, Subject, subject_of
from stagemesh.plan.type_text import held_type
from stagemesh.plan.values import StagePlan
from stagemesh.plan.wide_values import LAUNCH
from stagemesh.spec.diagnostic import nearest
from stagemesh.spec.pipeline import ExecutionType

_SESSIONS: Final = "duplex_session"
_FILE_ALONE: Final = "it is about a file; what it leads to are values of stages and the pipeline"
_HINTS: Final[Mapping[str, str]] = {
    "base_config": _FILE_ALONE,
    "platforms": _FILE_ALONE,
    _SESSIONS: "sessions take turns here, which `session_mode` says",
    EDGES: "the pipeline has one stage, and so no edge",
    CONNECTORS: "no connector is named; what the edges have is below `edges`",
}
"""What there is instead of values of the pipeline that may be absent as a whole."""
_OF_ALL: Final[Mapping[str, str]] = {
    AXES: "an axis is asked for by its name below that of a stage, as `STAGE.AXIS`",
    "values": "a value is asked for by its path; `explain STAGE` lists those of a stage",
}
"""What there is instead of collections of a plan that hold values of many kinds."""
_SHOWN: Final = 4
"""Values of the same name that are shown."""
_LISTED: Final = 16
"""Names that are listed; of more, only one that is near."""


def is_undecided(subject: Subject, record: Record, catalog: Catalog) -> bool:
    """Whether something may be a value, which only a plan that does not stand yet would tell."""
    if record.is_planned:
        return False
    if subject.stage is not None:
        names = {"", AXES, *OF_STAGES, *stage_fields(catalog)}
    else:
        names = {LAUNCH, *OF_PLANS, *hints(DeployFile)} - FILE_ALONE
    return subject.path == STAGES or subject.path.partition(".")[0] in names


def instead_of(what: str, record: Record, catalog: Catalog) -> str:
    """Name the nearest value there is, beside the one asked for rather than elsewhere."""
    what = what.removeprefix(f"{STAGES}.")
    known = set(_known(record, catalog))
    path = subject_of(what, record, catalog).path
    if path in _OF_ALL:
        return _OF_ALL[path]
    return (
        _namesakes(what, known)
        or (_absent_section(what, known) if record.is_planned else "")
        or _beside(what, known, record, catalog)
        or _anywhere(what, known, record)
    )


def _namesakes(what: str, known: Collection[str]) -> str:
    """Name values that are called the same: further down in the stage, or on edges."""
    around, _, last = what.rpartition(".")
    same = sorted(path for path in known if path.rpartition(".")[2] == last)
    own = [path for path in same if around and path.startswith(f"{around}.")]
    wide = [path for path in same if path.partition(".")[0] in (EDGES, _SESSIONS)]
    shown = [f"`{path}`" for path in (own or wide)[:_SHOWN]]
    return f"it stands at {', '.join(shown)}" if shown else ""


def _absent_section(what: str, known: Collection[str]) -> str:
    """Say of a field of a section that is absent as a whole why it is."""
    first, last = what.partition(".")[0], what.rpartition(".")[2]
    for name, hint in _HINTS.items():
        held = held_type(hints(DeployFile)[name])
        is_absent = not any(path.startswith(f"{name}.") for path in known)
        if name != first and is_absent and held is not None and last in hints(held):
            return f"`{last}` is a field of `{name}` in deploy files: {hint}"
    return ""


def _beside(what: str, known: Collection[str], record: Record, catalog: Catalog) -> str:
    """Name the nearest of what stands beside the value that is not there."""
    for above in _above(what):
        shown = subject_of(above, record, catalog).shown
        below = {_part_below(shown, path) for path in known if path.startswith(f"{shown}.")}
        if below:
            return _one_of(shown, _part_below(above, what), sorted(below))
        if shown in known:
            return f"`{shown}` has no members"
    return ""


def _anywhere(what: str, known: Collection[str], record: Record) -> str:
    """Name what is near in the whole plan."""
    first = what.partition(".")[0]
    if first in _HINTS:
        return _HINTS[first]
    names = _stages(record)
    ends = (f".{first}", f".{what.rpartition('.')[2]}")
    having = [path for path in sorted(known) if path.endswith(ends)]
    listed = [f"`{path}`" for name in names for path in having if path.startswith(f"{name}.")]
    if listed:
        return f"stages have it: {', '.join(listed[:_SHOWN])}"
    near = nearest(what, known)
    meant = "" if near is None else f"did you mean `{near}`? "
    return f"{meant}stages of this plan: {', '.join(f'`{name}`' for name in names)}"


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
        yield from (
            f"{name}.{each.name}.routing" for each in catalog.axes.values() if each.policies
        )
        yield from (f"{name}.{field}" for field in (() if stage is None else OF_STAGES))
        yield from (f"{name}.{field.name}" for field in fields if _has(stage, field))


def _has(stage: StagePlan | None, field: StageField) -> bool:
    """Whether a stage has a field by its kind; options of engines are values of their stages."""
    is_ours = field.axis is not None or field.declared_by in (StageEntry, *KIND_FIELDS)
    return is_ours and (stage is None or ExecutionType(stage.execution_type) in field.fits)


def _stages(record: Record) -> Collection[str]:
    return dict.fromkeys(record.names.values())
