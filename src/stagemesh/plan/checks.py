"""Rules over the axes of one stage, on the effective layout; declarations bring the pair rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from stagemesh.config.axes_off import misfit
from stagemesh.config.tree import quoted
from stagemesh.plan.report import Report
from stagemesh.plan.stack import Stack, StackedAxis, implied_size
from stagemesh.spec.axis import Finding, StackView
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.hooks import Binding, KernelSpec
from stagemesh.spec.origin import Origin

MAX_RANKS: Final = 2**12
"""Ranks that one stage may have; a slip of the keyboard must not fill the memory."""


def check_stack(stack: Stack, report: Report) -> bool:
    """Report what is wrong with a stage's axes; return whether its ranks can be counted at all.

    They cannot where the size of an axis that brings them is wrong: it will be another one.
    """
    misfits = list(_misfits(stack))
    stack = replace(stack, axes=tuple(item for item in stack.axes if stack.fits(item)))
    contradictions = [*_unsettled(stack), *_excluded_pairs(stack), *_too_many_ranks(stack)]
    report.add(*misfits, *contradictions)
    if contradictions:
        return False
    is_counted = not misfits
    for item in stack.axes:
        mismatch = _size_mismatch(stack, item)
        if mismatch is not None:
            report.add(mismatch)
            continue
        findings = list(rule_findings(stack, item, report.skip))
        report.add(*(_placed(stack, item, finding) for finding in findings))
        if item.axis.name in dict(stack.mesh):
            is_counted &= all(finding.option is not None for finding in findings)
    report.add(*_field_conflicts(stack), *_binding_conflicts(stack))
    return is_counted


def lasting_findings(stack: Stack) -> Iterator[Diagnostic]:
    """Tell what stands against a stage's axes whatever checkpoint, devices and flags come yet."""
    yield from _misfits(stack)
    stack = replace(stack, axes=tuple(item for item in stack.axes if stack.fits(item)))
    yield from _excluded_pairs(stack)
    yield from _field_conflicts(stack)


def rule_findings(
    stack: Stack, item: StackedAxis, skip: Callable[[str], None]
) -> Iterable[Finding]:
    """Ask one axis of a stack what it has against the layout."""
    view = StackView(
        stage=stack.stage.model_stage,
        execution_type=stack.stage.execution_type,
        sizes=stack.sizes,
        routing=item.routing,
        options=item.options,
        facts=stack.facts,
        world=stack.world,
        weight_folders=stack.stage.weight_folders,
        names=item.names,
        skip=skip,
    )
    yield from item.axis.check(view)
    for part, number in item.axis.cuts(item.size, item.options).items():
        if number > 1 and part.value in stack.facts.uncut:
            yield Finding(
                code="MD060",
                message=f"`{item.axis.name}` cuts the {part.value} of"
                f" `{stack.stage.model_stage}`, and no plan says how",
                help=f"leave it out: {stack.facts.uncut[part.value]}",
            )


def _misfits(stack: Stack) -> Iterator[Diagnostic]:
    for item in stack.axes:
        found = misfit(item.axis, stack.stage, item.settings.origin)
        if found is not None:
            yield found


def _unsettled(stack: Stack) -> Iterator[Diagnostic]:
    for item in stack.axes:
        if item.unsettled is not None:
            yield _placed(stack, item, item.unsettled)


def _excluded_pairs(stack: Stack) -> Iterator[Diagnostic]:
    for first, second in itertools.combinations(stack.axes, 2):
        for item, other in ((first, second), (second, first)):
            reason = item.axis.excludes.get(other.axis.name)
            if reason is not None and min(item.size, other.size) > 1:
                yield Diagnostic(
                    code="AX021",
                    message=f"`{item.axis.name}` and `{other.axis.name}` cannot be stacked"
                    f" on `{stack.stage.model_stage}`",
                    origin=item.settings.origin,
                    notes=(other.set_here,),
                    help=f"remove one of them: {reason}",
                )
                break


def _too_many_ranks(stack: Stack) -> Iterator[Diagnostic]:
    ranks = stack.world * stack.num_replicas
    if ranks > MAX_RANKS:
        yield Diagnostic(
            code="AX024",
            message=f"`{stack.stage.model_stage}` has too many ranks: more than `{MAX_RANKS}`",
            notes=tuple(item.set_here for item in stack.axes if item.size > 1),
            help="make its axes smaller",
        )


def _size_mismatch(stack: Stack, item: StackedAxis) -> Diagnostic | None:
    size = implied_size(item.axis, stack.stage, stack.sizes)
    if size is None or size == item.size or not item.axis.is_possible(stack.facts):
        return None
    factors = item.axis.size_from[stack.stage.execution_type]
    product = " x ".join(factors)
    return Diagnostic(
        code="AX022",
        message=f"`{item.axis.name}` size `{item.size}` does not match {product} = `{size}`",
        origin=item.origin,
        notes=tuple(other.set_here for other in stack.axes if other.axis.name in factors),
        help=f"write `size: {size}`"
        if size > 1
        else f"`{item.axis.name}` lies over the ranks of {product}: make them `{item.size}`,"
        f" or leave `{item.axis.name}` out",
    )


def _placed(stack: Stack, item: StackedAxis, finding: Finding) -> Diagnostic:
    option = item.settings.options.get(finding.option or "")
    return Diagnostic(
        code=finding.code,
        message=finding.message,
        origin=item.origin if option is None else option.origin,
        notes=tuple(other.set_here for other in stack.axes if other.axis.name in finding.axes),
        help=finding.help,
    )


_NOTHING: Final = (None, False, "auto")
"""Values of a stage field that ask for nothing."""


def _field_conflicts(stack: Stack) -> Iterator[Diagnostic]:
    """Stage fields that say the opposite of what an axis needs, or cannot go with it."""
    name = stack.stage.model_stage
    for item in stack.axes:
        axis = item.axis
        for field, needed in item.needed_fields.items():
            given = stack.fields.get(field)
            if given is not None and given.value not in (None, needed.value):
                yield Diagnostic(
                    code="AX050",
                    message=f"`{axis.name}` on `{name}` needs `{field}` = {quoted(needed.value)},"
                    f" got {quoted(given.value)}",
                    origin=given.origin,
                    notes=(item.set_here,),
                    help=f"leave `{field}` out: `{axis.name}` sets it",
                )
        for field, reason in axis.excludes_fields.items() if item.size > 1 else ():
            given = stack.fields.get(field)
            if given is not None and given.value not in _NOTHING:
                yield Diagnostic(
                    code="AX051",
                    message=f"`{axis.name}` and `{field}` = {quoted(given.value)} of `{name}`"
                    " exclude each other",
                    origin=given.origin,
                    notes=(item.set_here,),
                    help=f"remove one of them: {reason}",
                )


def _binding_conflicts(stack: Stack) -> Iterator[Diagnostic]:
    """Bindings without an order between them, and kernels over the group of an axis not there."""
    taken: dict[tuple[str, str, int], StackedAxis] = {}
    for item in stack.axes:
        for spec in item.bindings:
            key = (spec.category.value, spec.target, spec.priority)
            other = taken.get(key)
            if other is not None:
                yield _binding_conflict(other, item, spec)
            taken[key] = item
            if (
                isinstance(spec, KernelSpec)
                and spec.group_axis is not None
                and spec.group_axis not in stack.sizes
            ):
                yield Diagnostic(
                    code="AX052",
                    message=f"kernel {quoted(spec.kernel_id)} of `{item.axis.name}` needs the"
                    f" group of {quoted(spec.group_axis)} on `{stack.stage.model_stage}`",
                    origin=_bound_at(item, spec),
                    help=did_you_mean(spec.group_axis, stack.sizes),
                )


def _bound_at(item: StackedAxis, spec: Binding) -> Origin:
    """Where an entry binds a hook or kernel; the entry itself for those of the axis."""
    for given in (item.settings.layer_hook_specs, item.settings.kernel_specs):
        found = [] if given is None else [n for n, each in enumerate(given.value) if each == spec]
        if given is not None and found:
            return given.at(found[-1])
    return item.settings.origin


def _binding_conflict(other: StackedAxis, item: StackedAxis, spec: Binding) -> Diagnostic:
    who, often = f"`{other.axis.name}` and `{item.axis.name}` both bind", ""
    if other is item:
        who, often = f"`{item.axis.name}` binds", " twice"
    return Diagnostic(
        code="AX023",
        message=f"{who} {quoted(spec.target)}{often}",
        origin=_bound_at(item, spec),
        notes=() if other is item else (other.set_here,),
        help=f"give one of them another priority than `{spec.priority}`"
        f" in category `{spec.category.value}`",
    )
