"""What the user gives to a planning command or to `Omni`: the one input of `load`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from stagemesh.spec.unset import UNSET, Unset

ConfigInput: TypeAlias = str | Path | Mapping[str, object]
"""A path to a YAML file, or the same content as a Python mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    async_chunk: bool | Unset = UNSET
    """Whether stages hand over chunks."""
    devices: str | int | Unset = UNSET
    """How many devices, or an imaginary set such as `8xH200`; the planner reads it."""
