"""Checks plain values against type annotations and builds the typed values; collects every mistake.

One walker serves files, flags, saved plans and request parameters. It knows frozen dataclasses
(from mappings), enums (from their values), `Literal`, unions, `tuple`, `list`, `Mapping`, the
scalars, `object` (any plain value) and `Annotated` with `Range`, `Pattern` or `Forbidden`. Nothing
is converted that the writer did not mean: a boolean is no number, text is no number, `2.0` is no
integer; only an integer may stand for a float. Lists become tuples wherever the annotation does not
ask for a list. A value that already has its type passes. The value of a key that is wrong itself is
not looked at, so no message shows it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, Union, cast

from stagemesh.config.meant import meant_by
from stagemesh.config.place import Place, Run
from stagemesh.config.plain import plain
from stagemesh.config.told_once import TOLD_ONCE, told_once
from stagemesh.config.tree import quoted
from stagemesh.spec.bounds import Range
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean, nearest
from stagemesh.spec.frozen import frozen
from stagemesh.spec.unset import UNSET, Unset

Value = TypeVar("Value")


@frozen
class Pattern:
    """A text that a regular expression matches as a whole; goes into `Annotated`."""

    regex: str
    """The expression."""
    example: str
    """A text that it matches, for messages."""
    rewrite: Callable[[object], str | None] | None = None
    """Gives the right spelling of a value of another type, when it can be told."""
    remedy: str | None = None
    """What to do instead, where the example does not say it all."""


@frozen
class Forbidden:
    """Texts that nobody may give, in capitals or not; goes into `Annotated`."""

    regex: str
    """Matches such a text as a whole when it is written in capitals."""
    reason: str
    """Why not; completes a message that begins with the place."""
    remedy: str
    """What to do instead."""
    code: str = "CF015"
    """Code of the diagnostic."""

    def matches(self, text: str) -> bool:
        """Whether `text` is one of them."""
        return re.fullmatch(self.regex, text.upper(), re.DOTALL) is not None


@frozen
class Checked(Generic[Value]):
    """A typed value, or everything that is wrong with it."""

    value: Value | Unset
    """The value; `UNSET` when there is a diagnostic."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """All mistakes, in the order of the source."""


Annotation: TypeAlias = Any
"""A type as it stands in an annotation: a class, a union, a generic alias, `Annotated`."""

Checker: TypeAlias = Callable[[object, Place, Run], object]
"""Returns the typed value, or `UNSET` after telling the run."""


def check(annotation: type[Value], value: object, place: Place) -> Checked[Value]:
    """Check `value` against `annotation` and build the typed value."""
    run = Run()
    built = checker(cast("Annotation", annotation))(value, place, run)
    if run.findings or built is UNSET:
        return Checked(value=UNSET, diagnostics=tuple(run.findings))
    return Checked(value=cast("Value", built))


@functools.cache
def hints(cls: type) -> Mapping[str, Annotation]:
    """Return the annotation of each field of a dataclass, `Annotated` kept."""
    return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def checker(annotation: Annotation) -> Checker:
    """Compile an annotation; the result is kept, so that the next value of it is cheap."""
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _generic(annotation, origin)
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _DataclassChecker(annotation)
    message = f"`{annotation!r}` is no annotation of a configured value"
    raise TypeError(message)


def _generic(annotation: Annotation, origin: Annotation) -> Checker:
    args = typing.get_args(annotation)
    if origin is Annotated:
        return _annotated(args[0], args[1:])
    if origin is Literal:
        return _literal(args)
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin is tuple and args[-1] is not Ellipsis:
        return _fixed_tuple(args)
    if origin in (tuple, list, Sequence):
        return _items(args[0], list if origin is list else tuple)
    if origin in (dict, Mapping):
        return _mapping(*args)
    message = f"`{annotation!r}` is no annotation of a configured value"
    raise TypeError(message)


# --- scalars -------------------------------------------------------------------------------------


def wrong_type(value: object, place: Place, run: Run, expected: str) -> Unset:
    """Tell that a value has another type than `expected`; what was told before stays untold."""
    if value is UNSET:
        return UNSET
    message = f"{place.name} must be {expected}, got {_got(value)}"
    return run.tell("CF012", message, place.origin, meant_by(value, expected))


def _got(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Iterator | AbstractSet):
        return f"a `{type(value).__name__}`"
    return f"text {quoted(value)}" if isinstance(value, str) else quoted(value)


def _scalar(kind: type, expected: str) -> Checker:
    def run_check(value: object, place: Place, run: Run) -> object:
        return value if type(value) is kind else wrong_type(value, place, run, expected)

    return run_check


def _float(value: object, place: Place, run: Run) -> object:
    if type(value) in (int, float):
        try:
            return float(cast("int | float", value))
        except OverflowError:
            return run.tell("CF013", f"{place.name} is too large for a number", place.origin)
    return wrong_type(value, place, run, "a number")


def _none(value: object, place: Place, run: Run) -> object:
    return None if value is None else wrong_type(value, place, run, "`null`")


def _any(value: object, _place: Place, _run: Run) -> object:
    return plain(value)


_SIMPLE: Mapping[Annotation, Checker] = {
    str: _scalar(str, "text"),
    bool: _scalar(bool, "`true` or `false`"),
    int: _scalar(int, "a whole number"),
    float: _float,
    type(None): _none,
    None: _none,
    object: _any,
    Any: _any,
}


# --- choices -------------------------------------------------------------------------------------


def _choice(value: object, place: Place, run: Run, allowed: Sequence[object]) -> Unset:
    texts = [item for item in allowed if isinstance(item, str)]
    if not isinstance(value, str) and len(texts) == len(allowed):
        return wrong_type(value, place, run, "text")
    message = f"{place.name} does not take {quoted(value)}"
    return run.tell("CF013", message, place.origin, did_you_mean(str(value), map(str, allowed)))


def _enum(kind: type[Enum]) -> Checker:
    members = {member.value: member for member in kind}

    def run_check(value: object, place: Place, run: Run) -> object:
        if isinstance(value, kind):
            return value
        if isinstance(value, str | int) and value in members:
            return members[value]
        return _choice(value, place, run, list(members))

    return run_check


def _literal(allowed: Sequence[object]) -> Checker:
    def run_check(value: object, place: Place, run: Run) -> object:
        if any(type(value) is type(item) and value == item for item in allowed):
            return value
        return _choice(value, place, run, allowed)

    return run_check


def _union(members: Sequence[Annotation]) -> Checker:
    others = [member for member in members if member is not type(None)]
    # where both may be, `1` is an integer
    checkers = [checker(member) for member in sorted(others, key=lambda member: member is float)]
    expected = " or ".join(_described(member) for member in others)
    takes_none = len(others) < len(members)

    def run_check(value: object, place: Place, run: Run) -> object:
        if value is None and takes_none:
            return None
        if len(checkers) == 1:
            return checkers[0](value, place, run)
        tries = [Run(partial=run.partial) for _ in checkers]
        for attempt, member in zip(tries, checkers, strict=True):
            built = member(value, place, attempt)
            if not attempt.findings:
                return built
        for attempt in tries:  # the first member whose own type it has says what is wrong inside
            if attempt.findings[0].code != "CF012" or attempt.findings[0].origin != place.origin:
                run.findings.extend(attempt.findings)
                return UNSET
        return wrong_type(value, place, run, expected)

    return run_check


def _described(annotation: Annotation) -> str:
    kind: Annotation = typing.get_origin(annotation)
    base = typing.get_args(annotation)[0] if kind is Annotated else annotation
    scalars = {str: "text", bool: "`true` or `false`", int: "a whole number", float: "a number"}
    if base in scalars:
        return scalars[base]
    return "a list" if typing.get_origin(base) in (tuple, list, Sequence) else "a mapping"


# --- collections ---------------------------------------------------------------------------------


def _items(item: Annotation, build: type) -> Checker:
    def run_check(value: object, place: Place, run: Run) -> object:
        if not isinstance(value, list | tuple):
            return wrong_type(value, place, run, "a list")
        each = checker(item)
        built = [each(part, place.child(index), run) for index, part in enumerate(value)]
        return UNSET if UNSET in built else build(built)

    return run_check


def _fixed_tuple(items: Sequence[Annotation]) -> Checker:
    def run_check(value: object, place: Place, run: Run) -> object:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            return wrong_type(value, place, run, f"a list of `{len(items)}` values")
        built = tuple(
            checker(item)(part, place.child(index), run)
            for index, (item, part) in enumerate(zip(items, value, strict=True))
        )
        return UNSET if UNSET in built else built

    return run_check


def _mapping(key: Annotation, item: Annotation) -> Checker:
    def run_check(value: object, place: Place, run: Run) -> object:
        if not isinstance(value, Mapping):
            return wrong_type(value, place, run, "a mapping")
        each, each_key = checker(item), checker(key)
        built: dict[object, object] = {}
        for name, part in value.items():
            here = place.child(name)
            if run.partial and part is None:
                continue
            built_key = each_key(name, here.as_key, run)
            built[built_key] = UNSET if built_key is UNSET else each(part, here, run)
        return UNSET if UNSET in built or UNSET in built.values() else built

    return run_check


class _DataclassChecker:
    """Builds a dataclass from a mapping whose keys are its fields."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        fields = [field for field in dataclasses.fields(kind) if field.init]
        self._names = {field.name for field in fields}
        self._required = [
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]

    def __call__(self, value: object, place: Place, run: Run) -> object:
        if isinstance(value, self._kind):
            return value
        if not isinstance(value, Mapping):
            return wrong_type(value, place, run, "a mapping")
        types_of = hints(self._kind)
        built: dict[str, object] = {}
        for name, part in value.items():
            here = place.child(name)
            if name not in self._names:
                unknown_key(name, place, run, self._names)
                built["unknown"] = UNSET
            elif not (run.partial and part is None):
                built[name] = checker(types_of[name])(part, here, run)
        if run.partial:
            return UNSET if UNSET in built.values() else value
        for name in self._required:
            if name not in value:
                if key_meant(name, value, self._names) is None:
                    missing_key(name, place, run)
                built[name] = UNSET
        return UNSET if UNSET in built.values() else self._kind(**built)


def unknown_key(name: str | int, container: Place, run: Run, allowed: Iterable[str]) -> None:
    """Tell that a key means nothing in `container`, with the nearest that does."""
    tell_unknown_key(name, container, run, did_you_mean(str(name), allowed))


def tell_unknown_key(name: str | int, container: Place, run: Run, remedy: str) -> None:
    """Tell that a key means nothing in `container`, and what to do instead."""
    message = f"unknown key {quoted(name)} in {container.name}"
    run.tell("CF010", message, container.child(name).key_origin, remedy)


def key_meant(name: str, given: Iterable[str | int], allowed: Collection[str]) -> str | int | None:
    """Return the key that means nothing and was meant to be `name`, which then is not missing."""
    unknown = (key for key in given if key not in allowed)
    return next((key for key in unknown if nearest(str(key), allowed) == name), None)


def missing_key(name: str, place: Place, run: Run) -> None:
    """Tell that a key has to be given."""
    run.tell("CF011", f"{place.child(name).name} is missing", place.origin)


# --- constraints ---------------------------------------------------------------------------------


def _annotated(annotation: Annotation, metadata: Sequence[object]) -> Checker:
    inner = checker(annotation)
    ranges = [item for item in metadata if isinstance(item, Range)]
    patterns = [item for item in metadata if isinstance(item, Pattern)]
    forbidden = [item for item in metadata if isinstance(item, Forbidden)]

    def run_check(value: object, place: Place, run: Run) -> object:
        attempt = Run(partial=run.partial)
        built = inner(value, place, attempt)
        if attempt.findings:
            helped = next((p.rewrite(value) for p in patterns if p.rewrite is not None), None)
            told = told_once(attempt.findings) if TOLD_ONCE in metadata else attempt.findings
            run.findings.extend(
                dataclasses.replace(found, help=found.help or helped) for found in told
            )
        if built is UNSET or built is None:
            return built
        allowed: list[tuple[str, str | None]] = [
            (f"`{item}`", None) for item in ranges if not item.allows(cast("float", built))
        ]
        allowed += [
            (f"like `{item.example}`", item.remedy)
            for item in patterns
            if not re.fullmatch(item.regex, cast("str", built))
        ]
        for text, remedy in allowed:
            message = f"{place.name} must be {text}, got {quoted(built)}"
            run.tell("CF013", message, place.origin, remedy)
        refused = [item for item in forbidden if item.matches(cast("str", built))]
        for item in refused:
            run.tell(item.code, f"{place.name} {item.reason}", place.origin, item.remedy)
        return UNSET if allowed or refused else built

    return run_check
