"""`frozen`: the decorator of value types. Frozen, slotted, keyword-only dataclasses, made cheaply.

`dataclasses.dataclass` compiles six methods for every class, a millisecond each time a command
starts and for each of its two hundred value types. Here the methods that need no compiling are
shared, and `__init__` is compiled when the first instance is made. What comes out is a dataclass:
`fields`, `replace` and type checkers see no difference.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, Final, TypeVar, dataclass_transform

Kind = TypeVar("Kind")

_Getter = Callable[[object], object]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[Kind]) -> type[Kind]:
    """Make a value type of a class with annotated fields.

    Equality and hash look at the fields with `compare`, the text at those with `repr`; methods
    that the class itself has are kept.
    """
    own = set(vars(cls))
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)

    def first_init(self: object, **given: object) -> None:
        made.__init__ = _compiled_init(made)
        made.__init__(self, **given)

    shared = {"__repr__": _text, "__setattr__": _refuse, "__delattr__": _refuse}
    if "__eq__" not in own:
        shared |= {"__eq__": _equal, "__hash__": _hash}
    shared |= {"__init__": first_init, "__setstate__": _restore}
    for name, method in shared.items():
        if name not in own:
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def _compiled_init(kind: Any) -> Callable[..., None]:  # noqa: ANN401  any dataclass
    """Compile the `__init__` that takes the fields of a class by name."""
    names: dict[str, object] = {"MISSING": MISSING}
    parameters, lines = [], []
    for item in fields(kind):
        made, default = item.name, ""
        if item.default is not MISSING:
            names[f"default_{item.name}"] = item.default
            default = f"=default_{item.name}"
        elif item.default_factory is not MISSING:
            names[f"make_{item.name}"] = item.default_factory
            made = f"make_{item.name}() if {item.name} is MISSING else {item.name}"
            default = "=MISSING"
        if item.init:
            parameters.append(f"{item.name}{default}")
        elif default:
            made = f"default_{item.name}" if item.default is not MISSING else f"make_{item.name}()"
        else:
            continue
        # the slot itself: half the time of `object.__setattr__`, and runtimes make many values
        names[f"set_{item.name}"] = getattr(kind, item.name).__set__
        lines.append(f"set_{item.name}(self, {made})")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ", ".join(["self", *(["*", *parameters] if parameters else [])])
    body = "\n    ".join(lines or ["pass"])
    source = compile(f"def __init__({arguments}):\n    {body}\n", "<frozen>", "exec")
    # A string here would make CPython forget an unhandled Ctrl-C and exit with 1 (`pythonrun.c`).
    exec(source, names)  # noqa: S102  names of fields alone
    init: Any = names["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    return init  # type: ignore[no-any-return]


@functools.cache
def _compared(kind: Any) -> _Getter:  # noqa: ANN401  any dataclass
    """Return what gives the fields that make two values equal, as a tuple unless there is one."""
    names = [item.name for item in fields(kind) if item.compare]
    return operator.attrgetter(*names) if names else _nothing


def _nothing(_self: object) -> object:
    return ()


def _equal(self: object, other: object) -> bool:
    kind: Any = type(self)
    getter = _compared(kind)
    if kind is not type(other):
        return NotImplemented  # type: ignore[no-any-return]
    # in a tuple, so that a value that is unequal to itself, such as NaN, does not matter
    return (getter(self),) == (getter(other),)


def _hash(self: object) -> int:
    kind: Any = type(self)
    return hash(_compared(kind)(self))


def _text(self: Any) -> str:  # noqa: ANN401  any dataclass
    shown = (f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(_self: object, name: str, _value: object = None) -> None:
    message = f"cannot change field `{name}` of a value"
    raise FrozenInstanceError(message)


def _restore(self: object, state: tuple[None, Mapping[str, object]]) -> None:
    """Take the fields that `copy` has copied."""
    for name, copied in state[1].items():
        object.__setattr__(self, name, copied)


__all__: Final = ["frozen"]
