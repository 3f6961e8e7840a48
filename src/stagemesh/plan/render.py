"""A plan as text for people. Plain characters carry everything; the data is `Plan` itself.

What is shown by default lets the layout be seen at a glance; `details.py` has the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from stagemesh.plan.launch import launch_lines
from stagemesh.plan.pins import DEVICES
from stagemesh.plan.provenance import PLACEMENT
from stagemesh.plan.render_setup import device_rows, session_rows, setup_rows
from stagemesh.plan.table import table, wrapped
from stagemesh.plan.tally import effective_values, is_changed, tally
from stagemesh.plan.values import EdgePlan, MemoryPlan, Plan, StagePlan, ValuePlan
from stagemesh.plan.words import plural, size_text, value_text
from stagemesh.spec.axis import WorldRole

CHANGED: Final = "~"
"""Marks what is not as the model ships it."""
_LEGEND: Final = f"({CHANGED} changed from the model's default)"
_OWN: Final = "model default"
_LINE: Final = re.compile(r"(:[0-9]+){1,2}$")


def plan_text(plan: Plan, width: int | None = None) -> str:
    """Render what must be seen at a glance: stages, edges, routing, memory, what is missing."""
    blocks = [*_overview(plan, width), list(_facts(plan, width)), wrapped(_counts(plan), width)]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def plan_summary(plan: Plan, width: int | None = None) -> str:
    """Render the headline and the table of stages alone."""
    return "\n\n".join("\n".join(block) for block in _overview(plan, width)) + "\n"


def shown_path(path: str) -> str:
    """Write a path of a stage's value as people do: `tp` rather than `axes.tp.size`."""
    return path.removeprefix("axes.").removesuffix(".size") if path.startswith("axes.") else path


def _overview(plan: Plan, width: int | None) -> list[list[str]]:
    return [_headline(plan, width), list(_stages(plan, width))]


def _headline(plan: Plan, width: int | None) -> list[str]:
    replicas = sum(len(stage.replicas) for stage in plan.stages)
    imaginary = "imaginary " if plan.devices.imaginary else ""
    memory = plan.devices.memory_bytes
    each = "" if memory is None else f", {size_text(memory)} each"
    headline = (
        f"Plan for {plan.pipeline}: {plural(len(plan.stages), 'stage')},"
        f" {plural(replicas, 'replica')}, {plan.devices.count} {imaginary}{plan.devices.kind}"
        f" {'device' if plan.devices.count == 1 else 'devices'}{each}"
    )
    if not any(map(_is_marked, plan.stages)):
        return wrapped(headline, width)
    both = f"{headline}   {_LEGEND}"
    if width is None or len(both) <= width:
        return [both]
    return [*wrapped(headline, width), _LEGEND]


def _is_marked(stage: StagePlan) -> bool:
    return any(map(is_changed, stage.values.values()))


def _stages(plan: Plan, width: int | None) -> Iterator[str]:
    marks = any(map(_is_marked, plan.stages))
    blank = "  " if marks else ""
    rows = [(f"{blank}stage", "engine", "axes", "ranks x replicas", "devices", "from")]
    rows += [
        (
            f"{CHANGED} {stage.name}" if _is_marked(stage) else f"{blank}{stage.name}",
            stage.engine,
            " ".join(f"{axis.axis}={axis.size}" for axis in stage.axes) or "-",
            f"{stage.world_size} x {len(stage.replicas)}",
            devices_text(stage),
            ", ".join(_sources(stage)) or "automatic",
        )
        for stage in plan.stages
    ]
    return table(rows, width, headed=True)


def devices_text(stage: StagePlan) -> str:
    """Write the devices of every replica: `0-3 | 4-7`."""
    each = ([rank.device for rank in replica.ranks] for replica in stage.replicas)
    return " | ".join(",".join(_runs(devices)) for devices in each)


def _runs(devices: list[int]) -> Iterator[str]:
    """Write three or more ids in a row as their ends."""
    rest = list(devices)
    while rest:
        length = next(
            (at for at in range(1, len(rest)) if rest[at] != rest[0] + at),
            len(rest),
        )
        run, rest = rest[:length], rest[length:]
        yield f"{run[0]}-{run[-1]}" if length > 2 else ",".join(map(str, run))  # noqa: PLR2004


def _sources(stage: StagePlan) -> list[str]:
    """Say where the stage was changed: places of its layout, files of all else."""
    changed = {path: value for path, value in stage.values.items() if is_changed(value)}
    layout = [_source(value) for path, value in changed.items() if _is_layout(path)]
    places = list(dict.fromkeys(layout))
    named = {_LINE.sub("", place) for place in places}
    others = dict.fromkeys(_LINE.sub("", _source(value)) for value in changed.values())
    places += [source for source in others if source not in named]
    return places or ([_OWN] if stage.values else [])


def _source(value: ValuePlan) -> str:
    return value.layer if value.layer == PLACEMENT else value.origin


def _is_layout(path: str) -> bool:
    return path == DEVICES or (path.startswith("axes.") and path.endswith(".size"))


def _facts(plan: Plan, width: int | None) -> Iterator[str]:
    """Render everything else that matters, a line each."""
    rows = [("changed", text) for text in _pipeline_changes(plan)]
    rows += [("launch", text) for text in launch_lines(plan)]
    rows += [("placement", text) for text in _moved(plan)]
    rows += [("edges", text) for text in _chains(plan)]
    rows += [("routing", text) for text in _policies(plan)]
    rows += [("memory", text) for text in _memory(plan)]
    for place, name, text in (*device_rows(plan), *session_rows(plan), *setup_rows(plan)):
        rows.append((place, f"{name}: {text}"))
    rows += [("not checked", sentence) for sentence in plan.skipped_checks]
    rows += [("cannot run", reason) for reason in plan.not_runnable]
    return table(rows, width)


def _pipeline_changes(plan: Plan) -> Iterator[str]:
    for path, value in effective_values(plan):
        if is_changed(value):
            held = "is at its default" if value.clears else f"= {value_text(value.value)}"
            yield f"{path} {held} ({value.origin}{_taken_back(value)})"


def _moved(plan: Plan) -> Iterator[str]:
    """Say which stages do not lie where the model's own deploy file puts them, and why."""
    words = ((stage.name, stage.values.get(DEVICES)) for stage in plan.stages)
    moved = {name: word for name, word in words if word is not None and word.layer == PLACEMENT}
    for reason in dict.fromkeys(word.origin for word in moved.values()):
        yield f"{', '.join(moved)}: automatic; the model's own `{DEVICES}` give way: {reason}"


def _chains(plan: Plan) -> Iterator[str]:
    """Write edges that follow each other in one line, as long as they hand over alike."""
    names = {stage.stage_id: stage.name for stage in plan.stages}
    left = list(plan.edges)
    while left:
        chain = [left.pop(0)]
        while (following := _following(chain[-1], left)) is not None:
            left.remove(following)
            chain.append(following)
        hops = "".join(f" -{edge.connector}-> {names[edge.target]}" for edge in chain)
        how = "by chunk" if chain[0].chunked else "whole"
        yield f"{names[chain[0].source]}{hops} ({how})"


def _following(edge: EdgePlan, left: Iterable[EdgePlan]) -> EdgePlan | None:
    alike = (each for each in left if each.chunked is edge.chunked)
    return next((each for each in alike if each.source == edge.target), None)


def _policies(plan: Plan) -> Iterator[str]:
    """Say how requests are spread, wherever there is a choice."""
    for stage in plan.stages:
        host = stage.setup.host
        for axis in stage.axes:
            policy = axis.routing.args.get("policy")
            if policy is None or axis.size == 1:
                continue
            is_stage = axis.role == WorldRole.MULTIPLIES_REPLICAS.value
            chosen = f"follows {plan.stage(host).name}" if is_stage and host is not None else policy
            yield f"{stage.name}{'' if is_stage else f' {axis.axis}'}: {chosen}"


def _memory(plan: Plan) -> Iterator[str]:
    used: dict[int, int] = {}
    known = [(stage, stage.memory) for stage in plan.stages if stage.memory is not None]
    for stage, memory in known:
        for replica in stage.replicas:
            for rank in replica.ranks:
                used[rank.device] = used.get(rank.device, 0) + memory.total
        yield f"{stage.name}: {size_text(memory.total)} a rank ({_parts(memory)})"
    capacity = plan.devices.memory_bytes
    if capacity is not None and len(known) == len(plan.stages):
        fullest = max(used, key=lambda device: (used[device], -device))
        yield f"fullest device: {fullest}, {size_text(used[fullest])} of {size_text(capacity)}"


def _parts(memory: MemoryPlan) -> str:
    parts = (
        f"weights {size_text(memory.weights)}, cache {size_text(memory.cache)},"
        f" workspace {size_text(memory.workspace)}"
    )
    return f"{parts}, context {size_text(memory.context)}" if memory.context else parts


def _counts(plan: Plan) -> str:
    counts = tally(plan)
    untold = "given" if any(_moved(plan)) else "changed"
    told = (
        f"{plural(counts.files, 'value')} from files, {counts.command_line} from the command line,"
        f" {plural(counts.defaults, 'default')}."
        if counts.files or counts.command_line
        else f"nothing is {untold}: {plural(counts.defaults, 'default')}."
    )
    return f"{told} `stagemesh explain {_telling(plan)}` with the same arguments shows why."


def _telling(plan: Plan) -> str:
    """Name a value worth explaining: the first that was changed, axes before others, or a stage.

    Devices that give way, and the name of the pipeline, tell less than anything else.
    """
    given = [
        (f"{stage.name}.{shown_path(path)}", value, path.startswith("axes."))
        for stage in plan.stages
        for path, value in stage.values.items()
    ]
    given += [(path, value, False) for path, value in effective_values(plan)]
    changed = [
        (value.layer == PLACEMENT or name == "pipeline", not is_of_axis, name)
        for name, value, is_of_axis in given
        if is_changed(value)
    ]
    return min(changed, key=lambda each: each[:2], default=(0, 0, plan.stages[0].name))[2]


def _taken_back(value: ValuePlan) -> str:
    """Say what a `null` takes back; empty for a value, and where there was none."""
    old = next((each for each in value.superseded if not each.clears), None)
    if not value.clears or old is None:
        return ""
    return f" takes back {value_text(old.value)} of {old.origin}"


def value_line(path: str, value: ValuePlan, held: object = None) -> tuple[str, str]:
    """Cells of a value: what it is, and where it came from with what it replaced.

    `held` is the default that holds where the value was taken back.
    """
    if value.layer == PLACEMENT:
        old = value.superseded[0]
        since = f"{value_text(old.value)} of {old.origin} gives way: {value.origin}"
        return (f"{path} = automatic", f"{value.layer}: {since}")
    if value.clears:
        origin = f"{value.layer}: {value.origin}{_taken_back(value)}"
        since = f"default, since {origin}" if held is not None else origin
        return (f"{path} = {value_text(held)}", since)
    replaced = "".join(
        f"; replaces {value_text(old.value)} of {old.origin}" for old in value.superseded
    )
    origin = value.origin if value.origin == value.layer else f"{value.layer}: {value.origin}"
    return (f"{path} = {value_text(value.value)}", f"{origin}{replaced}")
