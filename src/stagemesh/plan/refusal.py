"""Which of the given values an options type of a plug-in refuses: it only says that it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin

Options = TypeVar("Options")


@frozen
class Refusal:
    """One reason, and the values that it is about."""

    reason: str
    """What the type says."""
    names: tuple[str, ...]
    """Values at fault: one, or several of which any could be changed."""

    def told(self, code: str, message: str, origins: Mapping[str, Origin]) -> Diagnostic:
        """Say it at the value of the highest layer, with the others beside it."""
        placed = [name for name in self.names if name in origins]
        placed.sort(key=lambda name: origins[name].layer, reverse=True)
        return Diagnostic(
            code=code,
            message=f"{message}: {self.reason}",
            origin=origins[placed[0]] if placed else None,
            notes=tuple(
                Note(message=f"`{name}` is given here", origin=origins[name]) for name in placed[1:]
            ),
        )


def make_options(
    kind: Callable[..., Options], given: Mapping[str, object]
) -> tuple[Options | None, tuple[Refusal, ...]]:
    """Make options, every one of which has a default; else return why they are refused."""
    try:
        return kind(**given), ()
    except ValueError as error:  # the type of a plug-in says no
        return None, tuple(_refusals(kind, given, str(error)))


def _refusals(
    kind: Callable[..., object], given: Mapping[str, object], reason: str
) -> Iterator[Refusal]:
    """Try values alone, then what is left of them together without each."""
    alone = {name: _reason(kind, {name: value}) for name, value in given.items()}
    for name, why in alone.items():
        if why is not None:
            yield Refusal(reason=why, names=(name,))
    left = {name: value for name, value in given.items() if alone[name] is None}
    together = reason if len(left) == len(given) else _reason(kind, left)
    if together is not None:
        without = {name: {key: left[key] for key in left if key != name} for name in left}
        curing = [name for name, others in without.items() if _reason(kind, others) is None]
        yield Refusal(reason=together, names=tuple(curing or left))


def _reason(kind: Callable[..., object], given: Mapping[str, object]) -> str | None:
    try:
        kind(**given)
    except ValueError as error:
        return str(error)
    return None
