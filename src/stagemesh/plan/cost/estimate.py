"""The cost of one stage's layout, put together from what its engine and its axes declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Final

from stagemesh.plan.engine import EngineChoice
from stagemesh.plan.stack import Stack, StackedAxis
from stagemesh.plan.values import DevicesPlan, TrafficPlan
from stagemesh.spec.cost import Cost, CostView, Forward, Part, Pieces
from stagemesh.spec.engine import MemoryEstimate, MemoryInput
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen

_MAY_BE_ZERO: Final = frozenset({"num_experts", "text_length"})


@frozen
class StageCost:
    """What one rank of a stage holds, computes and sends."""

    memory: MemoryEstimate | None = None
    """Memory, buffers of the axes included; `None` when the checkpoint does not say enough."""
    forward: Forward | None = None
    """One run of the network; `None` when nothing is known about it."""
    pieces: Pieces = field(default_factory=dict)
    """What the axes cut."""
    axes: Mapping[str, Cost] = field(default_factory=dict)
    """Cost of each axis that is larger than 1 and has one."""
    uncounted: tuple[str, ...] = ()
    """Given values that change what it holds in a way that is unknown."""
    unweighed: tuple[str, ...] = ()
    """Components whose size is not known, and so is not in the memory."""
    unknown: tuple[str, ...] = ()
    """Axes whose cost cannot be told, though the engine describes what it runs."""

    def traffic(self, axis: str) -> TrafficPlan | None:
        """What an axis sends, as the plan says it."""
        cost = self.axes.get(axis)
        if cost is None or self.forward is None:
            return None
        return TrafficPlan(
            sent_bytes=cost.sent_bytes,
            collectives=cost.collectives,
            per="request" if cost.per_request else "forward",
            tokens=self.forward.tokens,
        )


def memory_input(stack: Stack, choice: EngineChoice, devices: DevicesPlan) -> MemoryInput:
    """Return what the models of an engine are given about a stage, at the size it is asked for."""
    given = _input(stack, choice, devices)
    return given if choice.spec is None else replace(given, facts=choice.spec.scale(given).facts)


def _input(stack: Stack, choice: EngineChoice, devices: DevicesPlan) -> MemoryInput:
    return MemoryInput(
        facts=positive(stack.facts),
        sizes=stack.sizes,
        args=choice.args,
        stage_args=choice.stage_args,
        params=choice.params,
        device_kind=devices.kind,
        device_memory_bytes=devices.memory_bytes,
        pieces=pieces_of(stack),
    )


def stage_cost(stack: Stack, choice: EngineChoice, devices: DevicesPlan) -> StageCost:
    """Count; nothing is known about a stage without an engine or with refused arguments."""
    spec = choice.spec
    if spec is None or not isinstance(choice.args, spec.options):
        return StageCost()
    given = _input(stack, choice, devices)
    scaled = spec.scale(given)
    given = replace(given, facts=scaled.facts)
    forward = None if spec.forward is None else spec.forward(given)
    costs: dict[str, Cost | None] = {}
    for item in stack.axes:
        if item.size > 1 and item.axis.cost is not None and spec.forward is not None:
            costs[item.axis.name] = None
            if forward is not None:
                costs[item.axis.name] = item.axis.cost(_view(stack, item, given, forward))
    known = {name: cost for name, cost in costs.items() if cost is not None}
    buffers = sum(cost.memory_bytes for cost in known.values())
    return StageCost(
        memory=spec.memory(replace(given, buffer_bytes=buffers)),
        forward=forward,
        pieces=given.pieces,
        axes=known,
        uncounted=scaled.uncounted,
        unweighed=given.facts.unweighed,
        unknown=tuple(name for name, cost in costs.items() if cost is None),
    )


def pieces_of(stack: Stack) -> Pieces:
    """Multiply what the axes of a stage cut."""
    pieces: dict[Part, int] = {}
    for item in stack.axes:
        for part, count in item.axis.cuts(item.size, item.options).items():
            pieces[part] = pieces.get(part, 1) * count
    return pieces


def positive(facts: StageFacts) -> StageFacts:
    """Leave out amounts that no network has, so that no formula has to fear them."""
    wrong: dict[str, Any] = {
        item.name: None
        for item in fields(facts)
        if isinstance(value := getattr(facts, item.name), int)
        and not isinstance(value, bool)
        and value < (0 if item.name in _MAY_BE_ZERO else 1)
    }
    return replace(facts, **wrong) if wrong else facts


def _view(stack: Stack, item: StackedAxis, given: MemoryInput, forward: Forward) -> CostView:
    return CostView(
        sizes=stack.sizes,
        options=item.options,
        pieces=given.pieces,
        facts=given.facts,
        forward=forward,
    )
