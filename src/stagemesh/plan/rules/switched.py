"""Options on which nothing acts, because the option that they act with is not there or is off.

What an option needs stands where it is declared (`spec.switch`); here all of them are held against
the effective plan. An option whose switch nobody gives is an error: it was meant to do something.
One whose switch says no is a warning, and none where the switch is off in a layer above: whoever
switches a thing off there means its options too, unless they were typed for the same start. What
the root of a file says of all stages counts where one stage acts on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TypeAlias

from stagemesh.config.plain import plain
from stagemesh.config.settings import Sourced
from stagemesh.config.tree import quoted
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.switches import Group, Owner, stage_owner
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.switch import Switch, needs_of

_Words: TypeAlias = Sequence[tuple[str, Origin, Group]]
"""Options by name, with their places and with what would let each act."""


def switched(context: RuleContext) -> Ruling:
    """Tell of every option of a stage on which nothing acts."""
    owners = [
        stage_owner(
            draft.stage.model_stage,
            draft.stage.execution_type,
            draft.choice.spec,
            context.said(draft).fields.get,
        )
        for draft in context.drafts
    ]
    acting = {
        given.origin
        for owner in owners
        for _, given, group in owner.words()
        if given.origin.layer is Layer.PIPELINE_WIDE and group is None
    }
    found = (each for owner in owners for each in _told(owner, acting))
    return Ruling(diagnostics=tuple(found))


def switched_members(
    section: str, declared: type, parts: Mapping[str | int, Sourced[object]]
) -> Iterator[Diagnostic]:
    """Tell of every member of a section on which nothing acts."""
    has = frozenset(item.name for item in fields(declared))
    owner = Owner(name=section, needs=needs_of(declared), has=has, defaults={}, said=parts.get)
    return _told(owner, ())


def _told(owner: Owner, acting: Collection[Origin]) -> Iterator[Diagnostic]:
    """Say it once for all options that the same switches leave without effect."""
    groups: dict[tuple[str, ...], Group] = {}
    words: dict[tuple[str, ...], list[tuple[str, Origin, Group]]] = {}
    for name, given, group in owner.words():
        if group is not None and given.origin not in acting:
            names = tuple(each.name for each in group)
            words.setdefault(names, []).append((name, given.origin, group))
            if names not in groups or group[0].on:  # what asks for one value lets all of them act
                groups[names] = group
    for names, group in groups.items():
        off = ((each, owner.given(each.name)) for each in group)
        said = next(((each, given) for each, given in off if given is not None), None)
        if said is None:
            yield _missing(owner, group, words[names])
            continue
        meant = [each for each in words[names] if _is_meant(each[1], said[1].origin)]
        if meant:
            yield _off(owner, *said, meant)


def _is_meant(option: Origin, switch: Origin) -> bool:
    """Whether an option was not taken back together with what would let it act.

    The root of a deploy file is no lower than the entries of its stages here.
    """
    return not (option.shipped or switch.layer.takes_back(max(option.layer, Layer.DEPLOY)))


def _missing(owner: Owner, group: Group, words: _Words) -> Diagnostic:
    (name, origin, own), *others = words
    wanted = " or ".join(f"`{each.wanted}`" for each in group)
    return Diagnostic(
        code="PL150",
        message=f"`{name}` of `{owner.name}` needs `{own[0].wanted}`",
        origin=origin,
        notes=tuple(_needs_too(*other, own) for other in others),
        help=f"nothing acts on it otherwise: give {wanted}, or leave {_listed(words)} out",
    )


def _needs_too(name: str, place: Origin, group: Group, first: Group) -> Note:
    """Say of a further option what it needs, where that is not the same."""
    wanted = group[0].wanted
    is_same = wanted == first[0].wanted
    message = f"so does `{name}`" if is_same else f"`{name}` needs `{wanted}`"
    return Note(message=message, origin=place)


def _off(owner: Owner, switch: Switch, given: Sourced[object], words: _Words) -> Diagnostic:
    (name, origin, _), *others = words
    value = quoted(plain(given.value))
    other = f"write `{switch.wanted}`" if switch.on else f"give `{switch.name}` another value"
    return Diagnostic(
        code="PL150",
        severity=Severity.WARNING,
        message=f"`{switch.name}` of `{owner.name}` switches `{name}` off",
        origin=origin,
        notes=(
            Note(message=f"`{switch.name}` is {value} here", origin=given.origin),
            *(Note(message=f"so is `{each}`", origin=place) for each, place, _ in others),
        ),
        help=f"{other}, or leave {_listed(words)} out",
    )


def _listed(words: _Words) -> str:
    return " and ".join(f"`{name}`" for name, *_ in words)
