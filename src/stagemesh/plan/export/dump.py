"""Plain values as YAML that people read: members in the order given, short lists on one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import yaml

from stagemesh.config.tree import quoted
from stagemesh.config.yaml_core import CoreDumper
from stagemesh.plan.words import value_text

_WIDTH = 100


def yaml_text(value: Mapping[str, object]) -> str:
    """Write a mapping; tuples become lists."""
    return yaml.dump(
        _listed(value),
        Dumper=CoreDumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=_WIDTH,
    )


def comments(lines: Iterable[str]) -> str:
    """Write lines as comments."""
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def written(path: str, value: object) -> str:
    """Write a value with its path on one line, whole however long it is."""
    text = f"{path}: {value_text(value)}"
    return quoted(text, len(text))


def _listed(value: object) -> object:
    if isinstance(value, Mapping):
        return {_key(key): _listed(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_listed(inner) for inner in value]
    return value


def _key(key: object) -> int | str:
    """Numbers of stages stay numbers: other systems look them up so."""
    return key if isinstance(key, int) else str(key)
