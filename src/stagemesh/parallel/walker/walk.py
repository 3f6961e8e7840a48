"""The walker: every binding of a plan, and of whoever adds some, is put where it belongs.

What is bound are the `LayerHookSpec`s and `KernelSpec`s of strategies: those that follow from a
plan and its axes, and those that a strategy names. They are bound by category, then by priority;
two that name the same place, category and priority would be bound in an order that nobody has said,
and are refused. What a name means is said in `HOOKS` and `KERNELS`, to which others may add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from torch import nn

from stagemesh.errors import DiagnosticError, ParallelError
from stagemesh.parallel.bind_check import bind_findings
from stagemesh.parallel.modules import matching
from stagemesh.parallel.walker.activity import Activity
from stagemesh.parallel.walker.bound import Bound
from stagemesh.parallel.walker.groups import Groups
from stagemesh.parallel.walker.kernels import bind_norm, bind_row
from stagemesh.parallel.walker.sites import Sites
from stagemesh.parallel.walker.tokens import bind_gathers, bind_splits
from stagemesh.parallel.width import cut_width
from stagemesh.spec.hooks import Binding, HookCategory, KernelSpec, LayerHookSpec
from stagemesh.spec.model_plan import ModelPlan, TpStyle
from stagemesh.spec.plan_findings import plan_findings

Binder: TypeAlias = Callable[[Bound, str, nn.Module, str], None]
"""Binds something onto one module, given its path and the target that it was found by."""

_SPLIT, _GATHER = "split_tokens", "gather_tokens"
_ROW, _NORM, _ATTENTION = "row_linear", "norm_across_ranks", "sequence_attention"
HOOKS: Final[dict[str, Binder]] = {_SPLIT: bind_splits, _GATHER: bind_gathers}
"""What each `hook_id` binds."""
KERNELS: Final[dict[str, Binder]] = {_ROW: bind_row, _NORM: bind_norm}
"""What each `kernel_id` binds; attention is bound for all sites of a network together."""
_ORDER: Final = tuple(HookCategory)


def bindings_of(plan: ModelPlan, groups: Groups) -> tuple[Binding, ...]:
    """Return what follows from a plan where its ranks are these; nothing where they are one."""
    return tuple(_bindings(plan, groups))


def _bindings(plan: ModelPlan, groups: Groups) -> Iterator[Binding]:
    if groups.tp.group.size > 1:
        kernels = {TpStyle.ROW: _ROW, TpStyle.NORM: _NORM}
        for rule in plan.tp:
            if rule.style in kernels:
                yield KernelSpec(
                    kernel_id=kernels[rule.style],
                    target=rule.module,
                    category=HookCategory.LINEAR,
                    group_axis=groups.tp.group.axis,
                    requires_collective=True,
                )
    if groups.sp > 1:
        over = groups.ulysses if groups.ulysses.group.size > 1 else groups.ring
        for site in plan.sites:
            yield KernelSpec(
                kernel_id=_ATTENTION,
                target=site.module,
                category=HookCategory.ATTENTION_PRE,
                group_axis=over.group.axis,
                requires_collective=True,
            )
        for target in dict.fromkeys(split.module for split in plan.splits):
            yield LayerHookSpec(hook_id=_SPLIT, target=target)
        for target in dict.fromkeys(gather.module for gather in plan.gathers):
            yield LayerHookSpec(hook_id=_GATHER, target=target, priority=1)


def bind_network(
    plan: ModelPlan, network: nn.Module, groups: Groups, further: Sequence[Binding] = ()
) -> tuple[Binding, ...]:
    """Let the ranks of some groups run a network together; returns what was bound, in its order.

    `further` are bindings that a strategy names. The network is whole before, and has the weights
    of its own rank afterwards. Its first forward proves that everything runs: it raises
    `ActivityError`. Raises `DiagnosticError` where the plan does not hold for the network, and
    `ParallelError` where two bindings collide or nobody knows one; then nothing is bound. Where all
    groups are one rank nothing is changed.
    """
    bindings = [*bindings_of(plan, groups), *further]
    if not bindings and groups.tp.group.size == 1:
        return ()
    found = plan_findings(plan) or bind_findings(plan, network, groups.tp.group.size)
    if found:
        raise DiagnosticError(found)
    _check(plan, bindings)
    for binding in further:
        if not matching(network, binding.target):
            message = f"`{_name(binding)}` is to be bound onto `{binding.target}`"
            raise ParallelError(f"{message}, and `{plan.name}` has no such module")
    bindings.sort(key=lambda each: (_ORDER.index(each.category), each.priority))
    bound = Bound(
        plan=plan, network=network, groups=groups, activity=Activity(plan.name, groups.several)
    )
    if groups.tp.group.size > 1:
        cut_width(plan, network, groups.tp.group.size, groups.tp.group.own)
    sites = Sites(bound) if groups.sp > 1 else None
    network.register_forward_pre_hook(_beginning(bound, sites))
    for binding in bindings:
        for path, module in matching(network, binding.target):
            if sites is not None and _name(binding) == _ATTENTION:
                sites.bind(path, module, binding.target)
            else:
                _binder(binding)(bound, path, module, binding.target)
    network.register_forward_hook(_ending(bound, sites), always_call=True)
    return tuple(bindings)


def _name(binding: Binding) -> str:
    return binding.hook_id if isinstance(binding, LayerHookSpec) else binding.kernel_id


def _binder(binding: Binding) -> Binder:
    known = HOOKS if isinstance(binding, LayerHookSpec) else KERNELS
    return known[_name(binding)]


def _check(plan: ModelPlan, bindings: Sequence[Binding]) -> None:
    """Refuse names that nobody knows, and two bindings for one place."""
    places: dict[object, Binding] = {}
    for binding in bindings:
        is_hook = isinstance(binding, LayerHookSpec)
        known = HOOKS.keys() if is_hook else KERNELS.keys() | {_ATTENTION}
        if _name(binding) not in known:
            listed = ", ".join(f"`{name}`" for name in sorted(known))
            raise ParallelError(f"nothing is called `{_name(binding)}`; there are {listed}")
        place = (binding.category, binding.target, binding.priority)
        other = places.setdefault(place, binding)
        if other is not binding:
            message = f"`{_name(other)}` and `{_name(binding)}` are both bound onto"
            raise ParallelError(
                f"{message} `{binding.target or plan.name}` as `{binding.category.value}`"
                f" with priority `{binding.priority}`"
            )


def _beginning(bound: Bound, sites: Sites | None) -> Callable[..., None]:
    def begin(_network: nn.Module, _args: object) -> None:
        bound.lengths.clear()
        bound.activity.begin()
        if sites is not None:
            sites.begin()

    return begin


def _ending(bound: Bound, sites: Sites | None) -> Callable[..., None]:
    def end(_network: nn.Module, _args: object, output: object) -> None:
        if sites is not None:
            sites.end()
        bound.lengths.clear()
        if output is not None:  # the network has not failed itself
            bound.activity.end()

    return end
