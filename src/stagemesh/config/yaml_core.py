"""Which plain scalars of a YAML file are numbers, words and nothing: the core schema of YAML 1.2.

PyYAML reads YAML 1.1, where `on` is true, `1:30` is 90 and `1_000` is 1000. Here all of those are
the text that stands there, and a field that wants something else says so. A whole number with a
zero in front means 8 to one half of all readers and 10 to the other, so it is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import yaml

_PREFIX: Final = "tag:yaml.org,2002:"
_DECIMAL: Final = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
_CORE: Final[Mapping[str, tuple[str, str]]] = {
    "null": (r"~|null|Null|NULL|", "~nN"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (rf"{_DECIMAL}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+.0123456789"),
    "merge": (r"<<", "<"),
}
"""Kinds of plain scalars: what they look like, and how they begin."""
_LEADING_ZERO: Final = re.compile("[-+]?0[0-9]{1,63}")


_Table: TypeAlias = dict[str, list[tuple[str, re.Pattern[str]]]]


def _resolvers() -> _Table:
    """Return the table of PyYAML, kinds by first letter; nothing at all begins with no letter."""
    table: _Table = {}
    for kind, (regex, letters) in _CORE.items():
        for letter in (*letters, *([""] if kind == "null" else [])):
            table.setdefault(letter, []).append((_PREFIX + kind, re.compile(f"(?:{regex})\\Z")))
    return table


def _with_those_of(table: _Table) -> _Table:
    """Join both tables: text that looks like something else to either reader is quoted."""
    own = _resolvers()
    return {letter: [*table.get(letter, ()), *own.get(letter, ())] for letter in {*table, *own}}


def core_loader(base: type) -> Any:  # noqa: ANN401  PyYAML takes loaders as they are
    """Return a loader of PyYAML that reads plain scalars as the core schema does."""
    return type(f"Core{base.__name__}", (base,), {"yaml_implicit_resolvers": _resolvers()})


CoreLoader: Final = core_loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)
"""The fastest of them that is installed."""


class CoreDumper(yaml.SafeDumper):
    """Writes text so that readers of YAML 1.1 and of YAML 1.2 both take it for text."""

    yaml_implicit_resolvers = _with_those_of(yaml.SafeDumper.yaml_implicit_resolvers)


def is_ambiguous(text: str) -> bool:
    """Whether a plain whole number has a zero in front, which some take for base 8.

    Digits without end are no number at all, whatever they begin with.
    """
    return _LEADING_ZERO.fullmatch(text) is not None


def whole_number(text: str) -> int:
    """Return the whole number that a plain scalar of that kind says."""
    return int(text, 0)


def number(text: str) -> float:
    """Return the number that a plain scalar of that kind says."""
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
