"""Binding of stages to NUMA nodes and CPUs: one entry for each device that a replica sees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar, cast

from stagemesh.config.settings import Sourced
from stagemesh.config.tree import quoted
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.rules.executor import executor_of
from stagemesh.plan.setup import NumaPlan, RankBinding
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic

_SWITCH: Final = "numa_bind"
_NODES: Final = "numa_bind_nodes"
_CPUS: Final = "numa_bind_cpus"
_RANGE: Final = re.compile("([0-9]{1,5})(?:-([0-9]{1,5}))?")

Item = TypeVar("Item")


def numa(context: RuleContext) -> Ruling:
    """Check the lists of every stage and give each rank its entry."""
    found: list[Diagnostic] = []
    bound: dict[int, NumaPlan] = {}
    for draft in context.drafts:
        wrong = list(_wrong(context, draft))
        found += wrong
        if draft.choice.value(_SWITCH) and not wrong:
            bound[draft.stage_id] = _bound(draft)
    return Ruling(diagnostics=tuple(found), numa=bound)


def placeless(context: RuleContext, bound: Mapping[int, NumaPlan]) -> Iterator[str]:
    """Say which stages are to be bound to nobody knows what: the slots of a CPU have no node."""
    for draft in context.drafts if context.devices.platform == "cpu" else ():
        numa = bound.get(draft.stage_id)
        if numa is not None and numa.replicas[0][0] == RankBinding(node=None, cpus=None):
            yield (
                f"`{draft.stage.model_stage}`: `{_SWITCH}` on CPU devices needs `{_NODES}` or"
                f" `{_CPUS}`"
            )


def _wrong(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    stage, switch = draft.stage.model_stage, draft.choice.value(_SWITCH)
    if switch and not context.devices.system.startswith("linux"):
        yield Diagnostic(
            code="PL106",
            message=f"`{_SWITCH}` of `{stage}` needs Linux, and this host runs"
            f" `{context.devices.system}`",
            origin=context.origin(draft, _SWITCH),
            help=f"write `{_SWITCH}: false`, or leave it out",
        )
    for name, given in entries_of(context, draft).items() if switch else ():
        yield from _wrong_count(draft, name, given)
        if name == _CPUS:
            yield from _wrong_cpus(draft, given)


def entries_of(
    context: RuleContext, draft: StageDraft
) -> Mapping[str, Sourced[tuple[object, ...]]]:
    """Return the lists that a stage was given, by the name of their field."""
    lists = {name: context.given(draft, name) for name in (_NODES, _CPUS)}
    return {
        name: cast("Sourced[tuple[object, ...]]", given)
        for name, given in lists.items()
        if given is not None
    }


def _wrong_count(
    draft: StageDraft, name: str, given: Sourced[tuple[object, ...]]
) -> Iterator[Diagnostic]:
    world, got = draft.stack.world, len(given.value)
    allowed = sorted({world, world * draft.stack.num_replicas})
    if got not in allowed:
        need = " or ".join(f"`{number}`" for number in allowed)
        yield Diagnostic(
            code="PL104",
            message=f"`{name}` of `{draft.stage.model_stage}` has `{got}` entries and needs {need}",
            origin=given.origin,
            help="write one entry for each device of a replica, or of all replicas",
        )


def _wrong_cpus(draft: StageDraft, given: Sourced[tuple[object, ...]]) -> Iterator[Diagnostic]:
    for number, entry in enumerate(map(str, given.value)):
        if not is_cpu_list(entry):
            yield Diagnostic(
                code="PL105",
                message=f"{quoted(entry)} in `{_CPUS}` of `{draft.stage.model_stage}` is no list"
                " of CPUs",
                origin=given.at(number),
                help="write numbers and ascending ranges, such as `2-3` or `0,4-7`",
            )


def is_cpu_list(text: str) -> bool:
    """Whether a text lists CPUs as `numactl` and the kernel write them."""
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or (match[2] is not None and int(match[1]) > int(match[2])):
            return False
    return True


def _bound(draft: StageDraft) -> NumaPlan:
    """Give every rank its entry; lists for one replica hold for each."""
    world, replicas = draft.stack.world, draft.stack.num_replicas
    count = world * replicas
    nodes = _spread(cast("tuple[int, ...] | None", draft.choice.value(_NODES)), count)
    cpus = _spread(cast("tuple[str, ...] | None", draft.choice.value(_CPUS)), count)
    ranks = [RankBinding(node=node, cpus=each) for node, each in zip(nodes, cpus, strict=True)]
    return NumaPlan(
        binds="engine" if executor_of(draft) == "uni" else "workers",
        replicas=tuple(tuple(ranks[start : start + world]) for start in range(0, count, world)),
    )


def _spread(entries: tuple[Item, ...] | None, count: int) -> tuple[Item | None, ...]:
    if entries is None:
        return (None,) * count
    return entries * (count // len(entries))
