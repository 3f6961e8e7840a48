"""How two plans differ: what is decided otherwise, not how it was written.

Stages are matched by name, and everything about them is compared as it takes effect: ranks,
devices, routing, arguments, memory. Where a value was written is no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from stagemesh.config.plain import plain, plain_fields
from stagemesh.config.variables import SECRET
from stagemesh.plan.render import devices_text
from stagemesh.plan.table import printable, table, wrapped
from stagemesh.plan.values import AxisPlan, EdgePlan, Plan, StagePlan
from stagemesh.plan.words import plural, size_text, value_text
from stagemesh.spec.frozen import frozen
from stagemesh.spec.unset import UNSET

_ABSENT: Final = "-"
"""Stands for what one of the two does not have."""
_MASK: Final = "***"
_PIPELINE: Final = "pipeline"


@frozen
class Difference:
    """One thing that is decided otherwise."""

    where: str
    """The stage or edge, or `pipeline`."""
    what: str
    """What of it."""
    before: object = UNSET
    """How the first has it; `UNSET` where it does not."""
    after: object = UNSET
    """How the second has it, likewise."""

    @property
    def data(self) -> dict[str, object]:
        """It as JSON has it: values of their own types, and no member for a side without one."""
        sides = {"before": self.before, "after": self.after}
        told = {name: value for name, value in sides.items() if value is not UNSET}
        return {"where": self.where, "what": self.what, **told}


class _Bytes(int):
    """A number of bytes, which people read with a unit."""


def shown(value: object) -> str:
    """Write one side of a difference for people."""
    if value is UNSET:
        return _ABSENT
    return size_text(value) if isinstance(value, _Bytes) else value_text(value)


def differences(before: Plan, after: Plan) -> tuple[Difference, ...]:
    """Return everything that two plans decide otherwise, in the order of a plan."""
    found = list(compared(_PIPELINE, _whole(before), _whole(after)))
    found += _sentences("cannot run", before.not_runnable, after.not_runnable)
    found += _sentences("not checked", before.skipped_checks, after.skipped_checks)
    old = {stage.name: stage for stage in before.stages}
    new = {stage.name: stage for stage in after.stages}
    for name in dict.fromkeys((*old, *new)):
        found += compared(name, _stage(old.get(name)), _stage(new.get(name)))
    edges, others = _edges(before), _edges(after)
    for name in dict.fromkeys((*edges, *others)):
        found += compared(name, _edge(edges.get(name)), _edge(others.get(name)))
    return tuple(found)


def differences_text(
    found: Sequence[Difference], names: tuple[str, str], width: int | None = None
) -> str:
    """Render differences by the place they are in, below the names of the two compared."""
    before, after = names
    if not found:
        return "\n".join(wrapped(f"{before} and {after} say the same", width)) + "\n"
    blocks = [[printable(f"--- {before}"), printable(f"+++ {after}")]]
    places = dict.fromkeys(each.where for each in found)
    for place in places:
        rows = [
            (f"  {each.what}", f"{shown(each.before)} => {shown(each.after)}")
            for each in found
            if each.where == place
        ]
        blocks.append([printable(place), *table(rows, width)])
    told = f"{plural(len(found), 'difference')} in {plural(len(places), 'place')}"
    return "\n\n".join(map("\n".join, [*blocks, [told]])) + "\n"


def compared(
    where: str, before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[Difference]:
    """Compare two things by their parts; what looks like a secret is never shown."""
    for what in dict.fromkeys((*before, *after)):
        old, new = before.get(what, UNSET), after.get(what, UNSET)
        if shown(old) == shown(new):
            continue
        if SECRET.matches(what.rpartition(".")[2]):
            old, new = (
                each if each is UNSET else f"{_MASK} ({side})"
                for each, side in ((old, "before"), (new, "after"))
            )
        yield Difference(where=where, what=what, before=old, after=new)


def _sentences(what: str, before: Sequence[str], after: Sequence[str]) -> Iterator[Difference]:
    for old in before:
        if old not in after:
            yield Difference(where=_PIPELINE, what=what, before=old)
    for new in after:
        if new not in before:
            yield Difference(where=_PIPELINE, what=what, after=new)


def _whole(plan: Plan) -> dict[str, object]:
    devices = plan.devices
    memory = UNSET if devices.memory_bytes is None else _Bytes(devices.memory_bytes)
    return {
        "model": plan.pipeline,
        "checkpoint": plan.checkpoint.path,
        "configuration": plan.checkpoint.config_hash[:12],
        "devices": f"{devices.count} {'imaginary ' if devices.imaginary else ''}{devices.kind}",
        "device memory": memory,
        "async_chunk": plan.async_chunk,
        "active_stream_window": plan.active_stream_window,
        "cuda_mps": plan.cuda_mps,
        **dict(leaves("session.", _parts(plan.session))),
        **dict(leaves("launch.", _parts(plan.launch))),
        **dict(leaves("weight_transfer.", _parts(plan.weight_transfer))),
    }


def _parts(value: object) -> Mapping[str, object]:
    """The fields of a value that say something; none of what is absent."""
    found = {} if value is None else plain_fields(value)
    return {name: inner for name, inner in found.items() if inner is not None}


def _stage(stage: StagePlan | None) -> dict[str, object]:
    if stage is None:
        return {}
    memory = stage.memory
    return {
        "engine": stage.engine,
        "axes": " ".join(f"{axis.axis}={axis.size}" for axis in stage.axes) or UNSET,
        "ranks x replicas": f"{stage.world_size} x {len(stage.replicas)}",
        "devices": devices_text(stage),
        "policy": stage.policy,
        **{f"routing of {axis.axis}": _routing(axis) for axis in stage.axes},
        "memory of a rank": UNSET if memory is None else _Bytes(memory.total),
        "input": ",".join(map(str, stage.input_sources)) or UNSET,
        "output": stage.final_output_type or UNSET,
        **dict(leaves("", stage.engine_args)),
        **dict(leaves("", stage.stage_args)),
        **dict(leaves("additional_config.", stage.model_args)),
        **dict(leaves("default_sampling_params.", stage.sampling)),
        **dict(leaves("env.", stage.env)),
        **dict(leaves("setup.", _parts(stage.setup))),
        **dict(pair for axis in stage.axes for pair in _options(axis)),
        **{
            f"{each.kind} of {each.target}": f"{each.name} ({each.axis})" for each in stage.bindings
        },
    }


def _routing(axis: AxisPlan) -> str:
    args = ", ".join(value_text(value) for value in axis.routing.args.values())
    enters = f"{axis.routing.name}({args})" if args else axis.routing.name
    return f"{enters} -> {axis.aggregation.name}"


def _options(axis: AxisPlan) -> Iterator[tuple[str, object]]:
    """Options that say something; where the axis is absent, so are the others."""
    given = {name: value for name, value in axis.options.items() if value is not None}
    return leaves(f"{axis.axis}.", given)


def leaves(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Return values by their paths, down to what is no mapping."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", plain(value)


def _edges(plan: Plan) -> dict[str, EdgePlan]:
    names = {stage.stage_id: stage.name for stage in plan.stages}
    ends = ((edge, names.get(edge.source), names.get(edge.target)) for edge in plan.edges)
    return {
        f"{source or edge.source} -> {target or edge.target}": edge for edge, source, target in ends
    }


def _edge(edge: EdgePlan | None) -> dict[str, object]:
    if edge is None:
        return {}
    return {
        "connector": edge.connector,
        "payload": edge.payload_type,
        "handover": "by chunk" if edge.chunked else "whole",
        "bridge": edge.bridge or UNSET,
        "window_size": edge.window_size,
        "max_inflight": edge.max_inflight,
        **dict(leaves("", edge.options)),
        **dict(leaves("", edge.model_options)),
    }
