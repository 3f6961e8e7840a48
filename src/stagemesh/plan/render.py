"""A plan as text for people. Plain characters carry everything; the data is `Plan` itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stagemesh.plan.diagnostics import plural, printable
from stagemesh.plan.launch import launch_lines
from stagemesh.plan.place import size_text
from stagemesh.plan.render_setup import device_rows, session_rows, setup_rows
from stagemesh.plan.values import MemoryPlan, Plan, StagePlan, ValuePlan


def plan_text(plan: Plan) -> str:
    """Render the plan: stages, ranks, edges, routing, values, and why it cannot be run."""
    blocks = [
        [_headline(plan)],
        list(_stages(plan)),
        list(launch_lines(plan)),
        list(_ranks(plan)),
        list(_groups(plan)),
        list(_edges(plan)),
        list(_routing(plan)),
        list(_bindings(plan)),
        list(_memory(plan)),
        list(_traffic(plan)),
        list(table(list(device_rows(plan)))),
        list(table(list(session_rows(plan)))),
        list(table(list(setup_rows(plan)))),
        list(_values(plan)),
        [f"not checked  {printable(sentence)}" for sentence in plan.skipped_checks],
        [f"cannot run   {printable(reason)}" for reason in plan.not_runnable],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def plan_summary(plan: Plan) -> str:
    """Render the headline and the table of stages alone."""
    return "\n\n".join([_headline(plan), "\n".join(_stages(plan))]) + "\n"


def _headline(plan: Plan) -> str:
    replicas = sum(len(stage.replicas) for stage in plan.stages)
    imaginary = "imaginary " if plan.devices.imaginary else ""
    memory = plan.devices.memory_bytes
    each = "" if memory is None else f", {size_text(memory)} each"
    return (
        f"Plan for {plan.pipeline}: {plural(len(plan.stages), 'stage')},"
        f" {plural(replicas, 'replica')}, {plan.devices.count} {imaginary}{plan.devices.kind}"
        f" {'device' if plan.devices.count == 1 else 'devices'}{each}"
    )


def _stages(plan: Plan) -> Iterator[str]:
    rows = [("stage", "engine", "axes", "ranks x replicas", "devices", "from")]
    rows += [
        (
            stage.name,
            stage.engine,
            " ".join(f"{axis.axis}={axis.size}" for axis in stage.axes) or "-",
            f"{stage.world_size} x {len(stage.replicas)}",
            " | ".join(
                ",".join(str(rank.device) for rank in replica.ranks) for replica in stage.replicas
            ),
            ", ".join(_sources(stage)) or "automatic",
        )
        for stage in plan.stages
    ]
    return table(rows)


def _sources(stage: StagePlan) -> list[str]:
    """Where the layout of a stage was written: the sizes of its axes, and its devices."""
    laid_out = [
        value.origin
        for path, value in stage.values.items()
        if path == "devices" or (path.startswith("axes.") and path.endswith(".size"))
    ]
    return list(dict.fromkeys(laid_out))


def _ranks(plan: Plan) -> Iterator[str]:
    """Devices and coordinates of the ranks, for stages that have more than one in a replica."""
    rows = [
        (
            "ranks",
            f"{stage.name}[{replica.index}] rank {rank.rank}",
            f"device {rank.device}",
            " ".join(f"{axis}={coord}" for axis, coord in rank.coords.items()),
        )
        for stage in plan.stages
        if stage.world_size > 1
        for replica in stage.replicas
        for rank in replica.ranks
    ]
    return table(rows)


def _groups(plan: Plan) -> Iterator[str]:
    rows = [
        (
            "groups",
            f"{stage.name} {axis.axis}",
            " ".join(f"[{','.join(map(str, group))}]" for group in axis.groups),
        )
        for stage in plan.stages
        if stage.world_size > 1
        for axis in stage.axes
        if axis.groups
    ]
    return table(rows)


def _edges(plan: Plan) -> Iterator[str]:
    names = {stage.stage_id: stage.name for stage in plan.stages}
    rows = [
        (
            "edges",
            f"{names[edge.source]} -> {names[edge.target]}",
            edge.connector,
            f"{edge.payload_type} {'by chunk' if edge.chunked else 'whole'}",
        )
        for edge in plan.edges
    ]
    return table(rows)


def _routing(plan: Plan) -> Iterator[str]:
    rows = [
        (
            "routing",
            f"{stage.name} {axis.axis}",
            (
                f"{axis.routing.name}{_args(axis.routing.args)}"
                f" -> {axis.aggregation.name}{_args(axis.aggregation.args)}"
            ),
            axis.owner,
        )
        for stage in plan.stages
        for axis in stage.axes
    ]
    return table(rows)


def _bindings(plan: Plan) -> Iterator[str]:
    """Hooks and kernels in the order in which they are bound."""
    rows = [
        (
            "bindings",
            f"{stage.name} {each.axis}",
            f"{each.kind} {each.name}",
            each.target,
            f"{each.category} {each.priority}",
        )
        for stage in plan.stages
        for each in stage.bindings
    ]
    return table(rows)


def _args(args: Mapping[str, object]) -> str:
    return f"({', '.join(str(value) for value in args.values())})" if args else ""


def _memory(plan: Plan) -> Iterator[str]:
    rows = [
        ("memory", stage.name, f"{size_text(memory.total)} a rank", _parts(memory))
        for stage in plan.stages
        if (memory := stage.memory) is not None
    ]
    return table(rows)


def _parts(memory: MemoryPlan) -> str:
    parts = (
        f"weights {size_text(memory.weights)}, cache {size_text(memory.cache)},"
        f" workspace {size_text(memory.workspace)}"
    )
    return f"{parts}, context {size_text(memory.context)}" if memory.context else parts


def _traffic(plan: Plan) -> Iterator[str]:
    """What the busiest rank sends for each axis."""
    rows = [
        (
            "traffic",
            f"{stage.name} {axis.axis}",
            f"{size_text(traffic.sent_bytes)} a {traffic.per}",
            f"in {plural(traffic.collectives, 'collective')}, {plural(traffic.tokens, 'token')}",
        )
        for stage in plan.stages
        for axis in stage.axes
        if (traffic := axis.traffic) is not None
    ]
    return table(rows)


def _values(plan: Plan) -> Iterator[str]:
    rows = [("values", *_value(path, value)) for path, value in plan.values.items()]
    rows += [
        ("values", *_value(f"{stage.name}.{path}", value))
        for stage in plan.stages
        for path, value in stage.values.items()
    ]
    return table(rows)


def _value(path: str, value: ValuePlan) -> tuple[str, str, str]:
    replaced = "".join(f"; replaces {_show(old)} of {place}" for old, place in value.superseded)
    return (f"{path} = {_show(value.value)}", value.layer, f"{value.origin}{replaced}")


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_show(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple):
        return ",".join(_show(inner) for inner in value)
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align cells in columns; the first cell of a row that repeats the one above stays empty."""
    if not rows:
        return
    cleaned = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cleaned, strict=True)]
    above = ""
    for row in cleaned:
        head, above = ("" if row[0] == above else row[0]), row[0]
        yield "  ".join(_padded([head, *row[1:]], widths)).rstrip()


def _padded(cells: Iterable[str], widths: Iterable[int]) -> Iterator[str]:
    return (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
