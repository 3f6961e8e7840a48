"""What must be said for an option to act, written where the option is declared.

It goes into the metadata of a dataclass field: `field(default=None, metadata=acts_with(...))`. The
planner tells whoever gives an option on which nothing acts; schemas, flags and `explain` say beside
the option what it acts with.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from stagemesh.spec.frozen import frozen

_KEY: Final = "acts_with"


@frozen
class Switch:
    """An option that decides whether another one acts."""

    name: str
    """The option."""
    on: tuple[object, ...] = ()
    """Values under which the other one acts, also as members; all but those of `off` when empty."""
    off: tuple[object, ...] = (False,)
    """Values under which it does not."""
    by_default: bool = False
    """Whether it acts where nothing is said of this one."""
    example: str | None = None
    """What a file says to switch it on, where `on` does not tell."""

    def acts(self, value: object) -> bool:
        """Whether the other option acts where this one has `value`; what is empty says nothing."""
        if value in (None, {}, (), ""):
            return self.by_default
        if self.on:
            return any(_mentions(value, each) for each in self.on)
        return value not in self.off

    @property
    def wanted(self) -> str:
        """What to write so that the other option acts, as it stands in a file."""
        if self.example is not None:
            return f"{self.name}: {self.example}"
        return f"{self.name}: {_text(self.on[0])}" if self.on else self.name

    def __str__(self) -> str:
        """Say when the other option acts, such as "with `numa_bind: true`"."""
        if not self.by_default:
            return f"with `{self.wanted}`"
        return f"without `{self.name}: {_text(self.off[0])}`"


@frozen
class Needs:
    """What one option needs to act."""

    all_of: tuple[tuple[Switch, ...], ...]
    """Groups of switches: of each group, one must let the option act."""
    idle: tuple[object, ...] = (False,)
    """Values of the option that ask for nothing."""
    by_itself: str | None = None
    """Member of the option that makes it act, whatever else is said."""
    where: str = ""
    """On which stages that holds, for texts, where it is not on all that have the option."""

    def asks(self, value: object) -> bool:
        """Whether a value of the option asks for something that a switch has to let act."""
        if isinstance(value, Mapping) and (not value or self.by_itself in value):
            return False
        return not any(type(value) is type(each) and value == each for each in self.idle)

    def __str__(self) -> str:
        """Say when the option acts, as the end of a sentence about it."""
        groups = (" or ".join(map(str, group)) for group in self.all_of)
        alone = "" if self.by_itself is None else f" or its own `{self.by_itself}`"
        where = f" {self.where}" if self.where else ""
        text = f"acts only {' and '.join(groups)}{alone}{where}"
        return text.replace(" or with ", " or ")


def acts_with(
    *all_of: Switch | tuple[Switch, ...],
    idle: tuple[object, ...] = (False,),
    by_itself: str | None = None,
    where: str = "",
) -> Mapping[str, object]:
    """Return the metadata of a field that acts only with others; a tuple is a choice of them."""
    groups = tuple(each if isinstance(each, tuple) else (each,) for each in all_of)
    return {_KEY: Needs(all_of=groups, idle=idle, by_itself=by_itself, where=where)}


@functools.cache
def needs_of(declared: type) -> Mapping[str, Needs]:
    """Return what the options of a dataclass need, by name, for those that need something."""
    found = ((item.name, item.metadata.get(_KEY)) for item in fields(declared))
    return {name: needs for name, needs in found if isinstance(needs, Needs)}


def _mentions(value: object, wanted: object) -> bool:
    """Whether a value is the wanted one, or has it somewhere inside."""
    if isinstance(value, Mapping):
        return any(_mentions(each, wanted) for each in value.values())
    return value == wanted


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
