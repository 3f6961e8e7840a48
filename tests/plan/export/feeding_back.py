"""Exported files, read as their reader would: fed back, with the flags and the list in them."""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import yaml

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import Annotation, Pattern
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs, python_fields
from stagemesh.plan.export.formats import FORMATS
from stagemesh.plan.make import Made, make
from stagemesh.plan.values import Plan
from stagemesh.spec.bounds import Range
from stagemesh.spec.unset import UNSET

HOST: Final = Host(kind="cpu", count=None, memory_bytes=2**40)
_HEAD: Final = "vllm-omni cannot express:"
_FLAGS: Final = re.compile(r"(?:THIS_FILE|is started: give `)([^`]*)`")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an exported file says."""

    deploy: Mapping[str, Any]
    """The deploy file."""
    strategy: Mapping[str, Any] | None
    """The strategy in its comments."""
    flags: Mapping[str, object]
    """The flags that go with it, by field."""
    unsaid: tuple[str, ...]
    """What it says that it cannot express."""


def exported(plan: Plan, catalog: Catalog, form: str) -> Exported:
    """Export a plan, and read what came out."""
    text = FORMATS[form].write(plan, catalog)
    notes = [line[2:] for line in text.splitlines() if line.startswith("#")]
    return Exported(
        deploy=yaml.safe_load(text),
        strategy=yaml.safe_load("\n".join(notes[notes.index("strategies:") :]))
        if "strategies:" in notes
        else None,
        flags=dict(_flags(next(_FLAGS.finditer("\n".join(notes)), None))),
        unsaid=tuple(notes[notes.index(_HEAD) + 1 :]) if _HEAD in notes else (),
    )


def _flags(found: re.Match[str] | None) -> typing.Iterator[tuple[str, object]]:
    words = [] if found is None else shlex.split(found[1])
    while words:
        name = words.pop(0).removeprefix("--").replace("-", "_")
        value: object = words.pop(0) if words and not words[0].startswith("--") else True
        yield name, yaml.safe_load(value) if isinstance(value, str) else value


def fed_back(said: Exported, like: PlanInputs, catalog: Catalog) -> Made:
    """Plan what an exported file says, on the devices of the first plan."""
    inputs = PlanInputs(
        model=like.model,
        deploy_config=said.deploy,
        strategy_config=UNSET if said.strategy is None else said.strategy,
        fields=python_fields(said.flags),
        devices=like.devices,
    )
    return make(inputs, HOST, catalog)


def decisions(plan: Plan) -> Plan:
    """The plan without the record of where its values came from."""
    stages = tuple(dataclasses.replace(stage, values={}) for stage in plan.stages)
    return dataclasses.replace(plan, stages=stages, values={})


def another(annotation: Annotation, default: object) -> object:
    """Return a value of a type that is not its default."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    special: object = origin
    if special is Annotated:
        bounds = [each for each in args[1:] if isinstance(each, Range | Pattern)]
        return _bounded(args[0], default, bounds[0]) if bounds else another(args[0], default)
    if special is Literal:
        return next(each for each in args if each != default)
    if type(None) in args:
        return another(next(each for each in args if each is not type(None)), default)
    if special is tuple:
        return [another(args[0], None)]
    if annotation is bool:
        return not default
    scalars: Mapping[object, object] = {int: 3, float: 0.5, str: "text", object: 1}
    return scalars.get(annotation, {"some": 1})


def _bounded(kind: Annotation, default: object, bound: Range | Pattern) -> object:
    if isinstance(bound, Pattern):
        return bound.example
    least = bound.minimum if bound.minimum is not None else 0
    value = least + (1 if kind is int else 0.25)
    return value if value != default else value + 1
