"""A plan against the network that it is about: paths, attributes and sizes, before it runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from torch import nn

from stagemesh.parallel.modules import Found, block_path, count, matching, sizes, weight_of
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.model_plan import (
    HeadAttribute,
    HeadTable,
    ModelPlan,
    Split,
    TpRule,
    TpStyle,
)
from stagemesh.spec.origin import Layer, Origin

_Finding: TypeAlias = tuple[str, str, str]
"""Code, message and help."""
_MATRIX: Final = 2
"""Dimensions of the weight of a linear layer."""
_PARAMETERS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def bind_findings(plan: ModelPlan, model: nn.Module, ranks: int = 1) -> tuple[Diagnostic, ...]:
    """Say what of a plan does not hold for a network, or for `ranks` ranks that cut its width."""
    found = [*_unresolved(plan, model)]
    found += [each for split in plan.splits for each in _no_parameter(plan, split, model)]
    found += [each for path in plan.blocks for each in _no_list(plan, path, model)]
    for rule in plan.tp:
        for at in matching(model, rule.module):
            found += _wrong_rule(plan, rule, model, at, ranks)
    for attribute in plan.attributes:
        for at in matching(model, attribute.module):
            found += _wrong_attribute(plan, attribute, model, at, ranks)
    for table in plan.tables:
        for at in matching(model, table.module):
            found += _wrong_table(plan, table, model, at, ranks)
    return told(plan, found)


def told(plan: ModelPlan, found: Iterable[_Finding]) -> tuple[Diagnostic, ...]:
    """Return findings about a plan as diagnostics, each once."""
    origin = Origin(layer=Layer.PIPELINE, source=f"plan of `{plan.name}`")
    return tuple(
        Diagnostic(code=code, message=message, origin=origin, help=help_text)
        for code, message, help_text in dict.fromkeys(found)
    )


# --- paths ---------------------------------------------------------------------------------------


def _unresolved(plan: ModelPlan, model: nn.Module) -> Iterator[_Finding]:
    """Paths that stand for no module, though the plan says that there is one."""
    needed = [
        *(each.module for each in plan.splits if not each.optional),
        *(each.module for each in plan.gathers),
        *(each.module for each in plan.sites if not each.optional),
        *(each.module for each in plan.tp if not each.optional),
        *(each.module for each in plan.attributes if not each.optional),
        *(each.module for each in plan.tables if not each.optional),
        *plan.blocks,
    ]
    for pattern in dict.fromkeys(needed):
        if not matching(model, pattern):
            message = f"`{plan.name}` has no module `{pattern}`"
            yield "MD050", message, _nearest(model, pattern)


def _nearest(model: nn.Module, pattern: str) -> str:
    """Say how far the path leads, and what follows there."""
    parts, known = pattern.split("."), ""
    for number in range(1, len(parts) + 1):
        if not matching(model, ".".join(parts[:number])):
            break
        known = ".".join(parts[:number])
    last = matching(model, known)[0][1]
    names = [name for name, _ in last.named_children()]
    where = f"`{known}`" if known else "the network"
    wanted = parts[len(known.split(".")) if known else 0]
    return f"in {where}: {did_you_mean(wanted, names)}"


def _no_parameter(plan: ModelPlan, split: Split, model: nn.Module) -> Iterator[_Finding]:
    """Splits of a parameter that `forward` does not have."""
    if isinstance(split.value, int):
        return
    for path, module in matching(model, split.module):
        parameters = inspect.signature(module.forward).parameters.values()
        names = [each.name for each in parameters if each.kind in _PARAMETERS]
        if split.value not in names:
            what = f"`forward` of `{path or plan.name}` takes no `{split.value}`"
            yield "MD051", what, did_you_mean(split.value, names)
            return


def _no_list(plan: ModelPlan, path: str, model: nn.Module) -> Iterator[_Finding]:
    for _, module in matching(model, path):
        if not isinstance(module, nn.ModuleList) or not len(module):
            kind = type(module).__name__
            message = f"`{path}` of `{plan.name}` is no list of blocks, but a `{kind}`"
            yield "MD053", message, "name a `ModuleList` that has items"


# --- width ---------------------------------------------------------------------------------------


def _wrong_rule(
    plan: ModelPlan, rule: TpRule, model: nn.Module, at: Found, ranks: int
) -> Iterator[_Finding]:
    """A module that its style cannot cut, or not into so many parts."""
    path, module = at
    weight, kind = weight_of(module), type(module).__name__
    what = f"`{path}` of `{plan.name}`"
    if rule.style is TpStyle.NORM:
        if not kind.endswith("Norm") or (weight is not None and weight.ndim != 1):
            yield "MD053", f"{what} is no norm over channels, but a `{kind}`", _STYLE_HELP
            return
        if weight is None:
            return
    elif weight is None or weight.ndim != _MATRIX or not isinstance(module, nn.Linear):
        yield "MD053", f"{what} is no linear layer, but a `{kind}`", _STYLE_HELP
        return
    assert weight is not None
    total = weight.shape[1 if rule.style is TpStyle.ROW else 0]
    try:
        yield from _indivisible(rule, model, path, (total, ranks), what)
    except LookupError as error:
        yield "MD051", f"{what} needs the number `{error.args[0]}`", _ATTRIBUTE_HELP
    except ValueError as error:
        message = f"blocks of {what} make `{error}`, and it has `{total}` channels there"
        yield "MD052", message, "`blocks` names all that lies side by side, in order"


_STYLE_HELP: Final = "columns and rows are `Linear`, across-heads norms have one weight a channel"
_ATTRIBUTE_HELP: Final = "name an attribute of the block, by its path from there"


def _indivisible(
    rule: TpRule, model: nn.Module, path: str, extent: tuple[int, int], what: str
) -> Iterator[_Finding]:
    total, ranks = extent
    block = block_path(rule.module, path)
    pieces = total if rule.pieces is None else count(model, block, rule.pieces)
    if total % pieces and not rule.blocks:
        message = f"`{total}` channels of {what} are not those of `{pieces}` equal pieces"
        yield "MD052", message, f"`{rule.pieces}` counts what lies along this dimension"
        return
    amounts = [pieces]
    if rule.blocks:
        amounts += sizes(model, block, rule.blocks, total)
    for amount in amounts:
        if not _fits(amount, ranks, copies=rule.copies, uneven=rule.uneven):
            counted = rule.pieces or "channels"
            message = f"`{ranks}` ranks do not divide the `{amount}` {counted} of {what}"
            yield "MD052", message, "choose a number of ranks that divides it"
            return


def _fits(amount: int, ranks: int, *, copies: bool, uneven: bool) -> bool:
    if amount % ranks == 0:
        return True
    return (copies and ranks % amount == 0) or (uneven and amount > ranks)


def _wrong_attribute(
    plan: ModelPlan, attribute: HeadAttribute, model: nn.Module, at: Found, ranks: int
) -> Iterator[_Finding]:
    """An attribute that is missing, holds no number, or does not divide."""
    path, name = at[0], attribute.name
    try:
        held = [count(model, path, each) for each in (attribute.ratio or ()) or (name,)]
        count(model, path, name)
    except LookupError as error:
        message = f"`{path}` of `{plan.name}` has no number `{error.args[0]}`"
        yield "MD051", message, "name an attribute that counts heads or channels"
        return
    if attribute.ratio is None and not _fits(held[0], ranks, copies=attribute.copies, uneven=False):
        message = f"`{ranks}` ranks do not divide `{name}` `{held[0]}` of `{path}` of `{plan.name}`"
        yield "MD052", message, "choose a number of ranks that divides it"


def _wrong_table(
    plan: ModelPlan, table: HeadTable, model: nn.Module, at: Found, ranks: int
) -> Iterator[_Finding]:
    """A table that is missing, or whose heads do not divide."""
    path, module = at
    what = f"`{path}` of `{plan.name}`"
    try:
        pieces = count(model, block_path(table.module, path), table.pieces)
    except LookupError as error:
        yield "MD051", f"{what} needs the number `{error.args[0]}`", _ATTRIBUTE_HELP
        return
    if not _fits(pieces, ranks, copies=False, uneven=False):
        message = f"`{ranks}` ranks do not divide the `{pieces}` heads of {what}"
        yield "MD052", message, "choose a number of ranks that divides it"
    if isinstance(table.value, int):
        return
    weight = weight_of(module, table.value)
    if weight is None or table.dim >= weight.ndim:
        message = f"{what} has no parameter `{table.value}` with a dimension `{table.dim}`"
        yield "MD051", message, did_you_mean(table.value, dict(module.named_parameters()))
    elif weight.shape[table.dim] % pieces:
        size = weight.shape[table.dim]
        message = f"dimension `{table.dim}` of {what} has `{size}` items, not those of heads"
        yield "MD052", message, f"`{table.pieces}` counts `{pieces}` heads"
