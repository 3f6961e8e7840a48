"""What was said about an axis that comes to nothing: its size is 1, so its options do nothing.

An option that only repeats a default says nothing, and whoever gives an axis the size 1 in a higher
layer means its options too, unless both were typed for the same start. What one flag says of all
stages counts where one stage acts on it.
Stage fields that serve an axis (`serves_fields`) are told of in the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator

from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.stack import Stack, StackedAxis
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.axis import SIZE, WorldRole
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin


@frozen
class _Word:
    """One thing that was said about an axis besides its size."""

    name: str
    """What it is called where it was written."""
    origin: Origin
    """Where that is."""


def idle(context: RuleContext) -> Ruling:
    """Warn of all that is said about axes which have no ranks or copies to act on."""
    stacked = [
        (draft, item)
        for draft in context.drafts
        for item in draft.stack.axes
        if draft.stack.fits(item)
    ]
    acting = {word.origin for _, item in stacked if not _is_idle(item) for word in _words(item)}
    found = []
    for draft, item in stacked:
        words = list(_words(item)) if _is_idle(item) else []
        lost = [word for word in words if word.origin not in acting]
        if lost:
            found.append(_without_effect(draft.stack, item, lost))
    return Ruling(diagnostics=(*found, *_unserved(context)))


def _unserved(context: RuleContext) -> Iterator[Diagnostic]:
    """Warn of stage fields that mean something only beside axes of which there is none."""
    axes = context.catalog.axes.values()
    for field in sorted({field for axis in axes for field in axis.serves_fields}):
        names = sorted(axis.name for axis in axes if field in axis.serves_fields)
        said = [
            (draft, _Word(name=field, origin=given.origin))
            for draft, given in context.each(field)
            if given.value is not False and not given.origin.shipped
        ]
        acting = {
            word.origin
            for draft, word in said
            if any(draft.stack.sizes.get(name, 1) > 1 for name in names)
        }
        for draft, word in said:
            if word.origin not in acting and not _is_taken_back(draft, names, word):
                possible = [
                    name
                    for name in names
                    if context.catalog.axes[name].is_possible(draft.stack.facts)
                ]
                larger = f"give {_either(possible)} a size above `1`, or " if possible else ""
                yield Diagnostic(
                    code="AX012",
                    severity=Severity.WARNING,
                    message=f"`{field}` of `{draft.stage.model_stage}` has no effect"
                    f" without {_either(names)}",
                    origin=word.origin,
                    help=f"{larger}leave `{field}` out",
                )


def _either(names: Iterable[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def _is_taken_back(draft: StageDraft, axes: Collection[str], word: _Word) -> bool:
    """Whether a higher layer gives one of the axes its size of 1."""
    return any(
        item.axis.name in axes and _is_switched_off(item, word.origin) for item in draft.stack.axes
    )


def _is_idle(item: StackedAxis) -> bool:
    """Whether its size asks for nothing; one that counts no ranks is a number of other things."""
    return item.size == 1 and item.unsettled is None and item.axis.role is not WorldRole.NO_RANKS


def _words(item: StackedAxis) -> Iterator[_Word]:
    """Yield what a size above 1 would give a meaning to, if it was said on purpose."""
    axis, settings = item.axis, item.settings
    if settings.size is None and axis.switch is not None and not settings.origin.shipped:
        yield _Word(name=axis.switch, origin=settings.origin)
    for option in dataclasses.fields(axis.options):
        given = settings.options.get(option.name)
        needs_size = option.name not in axis.acts_alone | axis.about_size
        if given is not None and given.value != option.default and needs_size:
            yield from _said(item, item.names[option.name], given.origin)
    routing = settings.routing
    if routing is not None and item.routing != axis.routing:
        yield from _said(item, "routing", routing.origin)


def _said(item: StackedAxis, name: str, written: Origin) -> Iterator[_Word]:
    if not written.shipped and not _is_switched_off(item, written):
        yield _Word(name=name, origin=written)


def _is_switched_off(item: StackedAxis, written: Origin) -> bool:
    size = item.settings.size
    return item.size == 1 and size is not None and size.origin.layer.takes_back(written.layer)


def _without_effect(stack: Stack, item: StackedAxis, words: list[_Word]) -> Diagnostic:
    """Say how it would act; where no size would do, as without experts, only to leave it out."""
    first, *others = words
    larger = f"{_larger(item)}, or " if item.axis.is_possible(stack.facts) else ""
    return Diagnostic(
        code="AX012",
        severity=Severity.WARNING,
        message=f"`{first.name}` of `{stack.stage.model_stage}` has no effect:"
        f" `{item.axis.name}` has size `1`",
        origin=first.origin,
        notes=tuple(Note(message=f"nor has `{word.name}`", origin=word.origin) for word in others),
        help=f"{larger}leave {' and '.join(f'`{word.name}`' for word in words)} out",
    )


def _larger(item: StackedAxis) -> str:
    axis = item.axis
    field = axis.field_for(SIZE)
    if item.settings.origin.layer is Layer.STRATEGY or not (field or axis.switch):
        return f"give `{axis.name}` a size above `1`"
    if field is not None:
        return f"give `{field}` above `1`"
    return f"make more ranks for `{axis.name}`"
