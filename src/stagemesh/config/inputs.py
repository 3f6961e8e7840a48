"""What the user gives to a planning command or to `Omni`: the one input of `load`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from stagemesh.config.opened import OpenedFile, open_file
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.unset import UNSET, Unset

ConfigInput: TypeAlias = str | Path | OpenedFile | Mapping[str, object]
"""A path to a YAML file, what was read there, or the same content as a Python mapping."""


@frozen
class GivenField:
    """One field that was said for all stages, or for the start itself; what is not said is absent.

    `None` is a value: it takes back what lower layers say.
    """

    name: str
    """The field, such as `tensor_parallel_size`."""
    value: object
    """Its value; of a flag that takes words, those words."""
    source: str
    """The flag as it was typed, or `Omni(tensor_parallel_size=...)`."""
    is_typed: bool = False
    """Whether `value` is text from a command line, to be read as the field's type asks."""
    kinds: frozenset[ExecutionType] = frozenset(ExecutionType)
    """Kinds of stage that it is said for."""


@frozen
class PlanInputs:
    """A model and everything that was said about how it should run."""

    model: str
    """An existing folder, or the name of an assembled checkpoint."""
    strategy_config: ConfigInput | Unset = UNSET
    """Strategy file; or stage names, each with its `StrategySpec`s."""
    deploy_config: ConfigInput | Unset = UNSET
    """Deploy file; the model's own when it is not given."""
    stage_overrides: str | Mapping[str, object] | Unset = UNSET
    """JSON text or a mapping: stage id or name to stage fields."""
    set_values: tuple[str, ...] = ()
    """`STAGE.PATH=VALUE`, each the same as an entry of `stage_overrides`."""
    fields: tuple[GivenField, ...] = ()
    """Fields for all stages and for the start, in the order in which they were given."""
    devices: str | int | Unset = UNSET
    """How many devices, or an imaginary set such as `8xH200`; the planner reads it."""
    argument: str = "MODEL"
    """How messages call the argument that gives the model."""


def opened_once(inputs: PlanInputs) -> PlanInputs:
    """Return inputs whose files are read already, for who plans with them more than once."""
    return replace(
        inputs,
        strategy_config=_opened(inputs.strategy_config),
        deploy_config=_opened(inputs.deploy_config),
    )


def _opened(given: ConfigInput | Unset) -> ConfigInput | Unset:
    return open_file(given) if isinstance(given, str | Path) else given


def python_fields(given: Mapping[str, object]) -> tuple[GivenField, ...]:
    """Return what was given to `Omni` by keyword; `UNSET` is as good as absent."""
    return tuple(
        GivenField(name=name, value=value, source=f"Omni({name}=...)")
        for name, value in given.items()
        if value is not UNSET
    )
