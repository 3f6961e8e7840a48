"""All of a plan as text for people: every rank, group, hook and value, with where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stagemesh.plan.render import value_line
from stagemesh.plan.table import table
from stagemesh.plan.tally import held_by
from stagemesh.plan.values import Plan
from stagemesh.plan.words import OWNERS, plural, size_text
from stagemesh.spec.axis import Owner


def details_text(plan: Plan, width: int | None = None) -> str:
    """Render what `plan_text` leaves out; empty for a plan that has nothing of it."""
    parts = (_ranks, _groups, _handovers, _routing, _traffic, _bindings, _values)
    blocks = ["\n".join(table(list(part(plan)), width)) for part in parts]
    return "".join(f"{block}\n\n" for block in blocks if block)


def _ranks(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Devices and coordinates of the ranks, for stages that have more than one in a replica."""
    for stage in plan.stages:
        for replica in stage.replicas if stage.world_size > 1 else ():
            for rank in replica.ranks:
                coords = " ".join(f"{axis}={coord}" for axis, coord in rank.coords.items())
                name = f"{stage.name}[{replica.index}] rank {rank.rank}"
                yield "ranks", name, f"device {rank.device}", coords


def _groups(plan: Plan) -> Iterator[tuple[str, ...]]:
    for stage in plan.stages:
        for axis in stage.axes if stage.world_size > 1 else ():
            groups = " ".join(f"[{','.join(map(str, group))}]" for group in axis.groups)
            if groups:
                yield "groups", f"{stage.name} {axis.axis}", groups


def _handovers(plan: Plan) -> Iterator[tuple[str, ...]]:
    names = {stage.stage_id: stage.name for stage in plan.stages}
    for edge in plan.edges:
        how = f"{edge.payload_type} {'by chunk' if edge.chunked else 'whole'}"
        yield "handover", f"{names[edge.source]} -> {names[edge.target]}", edge.connector, how


def _routing(plan: Plan) -> Iterator[tuple[str, ...]]:
    for stage in plan.stages:
        for axis in stage.axes:
            enters = f"{axis.routing.name}{_args(axis.routing.args)}"
            leaves = f"{axis.aggregation.name}{_args(axis.aggregation.args)}"
            who = OWNERS[Owner(axis.owner)]
            how = f"{enters} -> {leaves}, by {who}"
            yield "patterns", f"{stage.name} {axis.axis}", how


def _args(args: Mapping[str, object]) -> str:
    return f"({', '.join(str(value) for value in args.values())})" if args else ""


def _traffic(plan: Plan) -> Iterator[tuple[str, ...]]:
    """What the busiest rank sends for each axis."""
    for stage in plan.stages:
        for axis in stage.axes:
            if axis.traffic is not None:
                traffic = axis.traffic
                sent = f"{size_text(traffic.sent_bytes)} a {traffic.per}"
                counts = ((traffic.collectives, "collective"), (traffic.tokens, "token"))
                amounts = ", ".join(plural(number, word) for number, word in counts if number)
                yield "traffic", f"{stage.name} {axis.axis}", f"{sent} in {amounts}"


def _bindings(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Hooks and kernels in the order in which they are bound."""
    for stage in plan.stages:
        for each in stage.bindings:
            when = f"{each.category} {each.priority}"
            what = f"{each.kind} {each.name}"
            yield "bindings", f"{stage.name} {each.axis}", what, each.target, when


def _values(plan: Plan) -> Iterator[tuple[str, ...]]:
    for path, value in plan.values.items():
        yield "values", *value_line(path, value)
    for stage in plan.stages:
        held = held_by(stage)
        for path, value in stage.values.items():
            yield "values", *value_line(f"{stage.name}.{path}", value, held.get(path))
