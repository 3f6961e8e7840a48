"""Reads `edges`: settings of edges that the pipeline has, named by their two stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from stagemesh.config.check import checker, hints, key_meant, missing_key, unknown_key, wrong_type
from stagemesh.config.patch import Patch
from stagemesh.config.place import Place, Run
from stagemesh.config.schema import EDGE_ENDS, EdgeEntry
from stagemesh.config.settings import EdgeSettings
from stagemesh.config.stages import Stages
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.unset import UNSET

EDGES: Final = "edges"
"""The key of the list."""


def read_edges(given: object, place: Place, stages: Stages, run: Run) -> Iterator[Patch]:
    """Read the list into one patch: lists replace each other as a whole."""
    if given is None:
        yield Patch(stage_id=None, path=(EDGES,), value=None, origin=place.origin)
        return
    if not isinstance(given, tuple):
        wrong_type(given, place, run, "a list of edges")
        return
    found: dict[tuple[int, int], EdgeSettings] = {}
    for index, entry in enumerate(given):
        edge = _edge(entry, place.child(index), stages, run)
        if edge is None:
            continue
        first = found.setdefault((edge.source, edge.target), edge)
        if first is not edge:
            _tell_twice(edge, first, run)
    yield Patch(stage_id=None, path=(EDGES,), value=tuple(found.values()), origin=place.origin)


def _edge(entry: object, place: Place, stages: Stages, run: Run) -> EdgeSettings | None:
    if not isinstance(entry, Mapping):
        wrong_type(entry, place, run, "a mapping with `from` and `to`")
        return None
    types_of = hints(EdgeEntry)
    values: dict[str, object] = dict.fromkeys(types_of)
    for key, value in entry.items():
        if key in types_of:
            values[key] = checker(types_of[key])(value, place.child(key), run)
        elif key not in EDGE_ENDS:
            unknown_key(key, place, run, [*EDGE_ENDS, *types_of])
    source, target = (_stage(entry, place, end, stages, run) for end in EDGE_ENDS)
    if source is None or target is None or not _exists(source, target, place, stages, run):
        return None
    if UNSET in values.values():
        return None
    return EdgeSettings(
        source=source,
        target=target,
        connector=cast("str | None", values["connector"]),
        window_size=cast("int | None", values["window_size"]),
        max_inflight=cast("int | None", values["max_inflight"]),
        origin=place.origin,
        places={str(key): place.child(key).origin for key in entry},
    )


def _stage(
    entry: Mapping[str | int, object], place: Place, end: str, stages: Stages, run: Run
) -> int | None:
    """Return the number of the stage at one end."""
    here, value = place.child(end), entry.get(end, UNSET)
    if end not in entry and key_meant(end, entry, [*EDGE_ENDS, *hints(EdgeEntry)]) is None:
        missing_key(end, place, run)
    if type(value) not in (int, str):
        wrong_type(value, here, run, "the number or the name of a stage")
        return None
    stage = stages.named(value) if isinstance(value, str) else stages.numbered(int(str(value)))
    if stage is None:
        message = f"no stage {quoted(value)} in this pipeline"
        run.tell("CF020", message, here.origin, stages.help_for(str(value)))
        return None
    return stage.stage_id


def _exists(source: int, target: int, place: Place, stages: Stages, run: Run) -> bool:
    """Whether the pipeline has that edge; of an unknown one every edge is taken."""
    if stages.pipeline is None:
        return True
    edges = sorted(
        (above, stage.stage_id) for stage in stages.pipeline.stages for above in stage.input_sources
    )
    if (source, target) in edges:
        return True
    message = f"no edge `{source} -> {target}` in this pipeline"
    listed = ", ".join(f"`{above} -> {below}`" for above, below in edges) or "none"
    run.tell("CF034", message, place.origin, f"edges of `{stages.pipeline.model_type}`: {listed}")
    return False


def _tell_twice(edge: EdgeSettings, first: EdgeSettings, run: Run) -> None:
    run.findings.append(
        Diagnostic(
            code="CF035",
            message=f"edge `{edge.source} -> {edge.target}` is given twice",
            origin=edge.origin,
            notes=(Note(message="first given here", origin=first.origin),),
            help="put the settings of one edge into one entry",
        )
    )
