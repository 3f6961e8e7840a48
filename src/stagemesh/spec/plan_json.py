"""Plans of networks as JSON, for those that are generated and committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from enum import Enum
from typing import Any, Final, TypeAlias

from stagemesh.spec.model_plan import Gather, ModelPlan, Split, TpRule, TpStyle

JsonPlan: TypeAlias = Mapping[str, Any]
"""A plan as JSON: fields that have their default are left out."""

_KINDS: Final = {f"tuple[{kind.__name__}, ...]": kind for kind in (Split, Gather, TpRule)}
"""Kinds of entries that a generated plan has, by the types of the fields that hold them."""
_TUPLES: Final = ("streams", "whole", "blocks")


def to_json(value: object) -> dict[str, Any]:
    """Return a plan, or a part of one, as JSON."""
    items: tuple[Field[Any], ...] = fields(value)  # type: ignore[arg-type]  # it is one of ours
    return {
        item.name: _plain(getattr(value, item.name))
        for item in items
        if item.default is MISSING or getattr(value, item.name) != item.default
    }


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | None) else to_json(value)


def from_json(plan: JsonPlan) -> ModelPlan:
    """Return the plan that `to_json` made this of."""
    given = dict(plan)
    for item in fields(ModelPlan):
        kind = _KINDS.get(str(item.type))
        if kind is not None:
            given[item.name] = tuple(kind(**_typed(entry)) for entry in given.get(item.name, ()))
    return ModelPlan(**_typed(given))


def _typed(entry: JsonPlan) -> dict[str, Any]:
    typed = {key: tuple(value) if key in _TUPLES else value for key, value in entry.items()}
    if "style" in typed:
        typed["style"] = TpStyle(typed["style"])
    return typed
