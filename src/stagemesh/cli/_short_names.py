"""Flags that were meant by a short name: that of an axis, or the beginning of a flag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from stagemesh.config.launch_rules import flag_name
from stagemesh.spec.axis import SIZE, Axis
from stagemesh.spec.diagnostic import nearest
from stagemesh.spec.registry import AXES

_SET: Final = "--set"
_COUNTS: Final = ("", "_size", "_degree")
"""What may stand behind the name of an axis where its size is meant."""
_LISTED: Final = 4
"""Flags that a sentence offers."""


def meant_by(flag: str, flags: Sequence[str]) -> str | None:
    """Say which of `flags` one that does not exist was meant for; `None` where none is near."""
    word = flag.strip("-").replace("-", "_").casefold()
    axes = AXES.declarations()
    exact = [axis for axis in axes if word in [axis.name + count for count in _COUNTS]]
    begun = [each for each in flags if each.startswith(flag_name(word))]
    related = [axis for axis in axes if axis.name.startswith(f"{word}_")]
    by_word = {each.strip("-"): each for each in reversed(flags)}
    near = nearest(flag.strip("-"), by_word)
    if near is not None and not _is_near(flag.strip("-"), near):
        near = None
    return (
        _for_axes(exact, flags)
        or (_offer(begun) if 0 < len(begun) <= _LISTED else None)
        or _for_axes(related, flags)
        or (None if near is None else _offer([by_word[near]]))
    )


def _is_near(typed: str, near: str) -> bool:
    """Whether what two flags do not have in common is near, too: `-turbo-` is not `-sleep-`."""
    ours, theirs = typed.casefold().replace("_", "-").split("-"), near.split("-")
    left = "-".join(word for word in ours if word not in theirs)
    other = "-".join(word for word in theirs if word not in ours)
    return not left or nearest(left, [other]) is not None


def _for_axes(axes: Iterable[Axis], flags: Sequence[str]) -> str | None:
    """The flags that give the sizes of axes, or how that is said for one without."""
    found = [flag for axis in axes for flag in _flags_of(axis) if flag in flags]
    if found:
        return _offer(found)
    names = [axis.name for axis in axes] if _SET in flags else []
    written = " or ".join(f"`{_SET} STAGE.{name}=N`" for name in names)
    return f"the axis has no flag: write {written}, or a strategy file" if names else None


def _flags_of(axis: Axis) -> Iterator[str]:
    field = axis.field_for(SIZE) or axis.switch
    if field is not None:
        yield flag_name(field)


def _offer(flags: Sequence[str]) -> str:
    *most, last = (f"`{flag}`" for flag in flags)
    return f"did you mean {', '.join(most)} or {last}?" if most else f"did you mean {last}?"
