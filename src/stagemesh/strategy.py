"""Strategies from Python: the values that a strategy file holds, and what they come to.

    strategies = {"thinker": [StrategySpec(mesh_axis=MeshAxis(kind=MeshAxisKind.TP, size=2))]}
    Omni("MODEL", strategy_config=strategies)

One entry of a file is one `StrategySpec`; `DiffusionParallelConfig` says the layout of a diffusion
stage as a whole. All of it goes through the planner, so nothing here decides anything. Every type
that these functions take is here as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.errors import AxisTranslationError, StrategyApplyError, StrategyLoadError
from stagemesh.plan.diffusion_parallel import DiffusionParallelConfig
from stagemesh.plan.strategies import (
    OmniParallelConfig,
    StrategyApplyResult,
    apply_strategy_specs,
    check_device_layout,
    load_strategies,
    translate_strategy_stack,
)
from stagemesh.spec.axis import Owner
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.hooks import HookCategory, KernelSpec, LayerHookSpec
from stagemesh.spec.patterns import (
    Aggregation,
    AllGather,
    Broadcast,
    Combine,
    DuplicateWithCondTag,
    FanInByStage,
    GatherDim,
    PartitionByHash,
    PipelineMicrobatch,
    Policy,
    RouteByExpert,
    RouteByStage,
    Routing,
    ShardSequence,
    ShardSpatial,
    StitchPipeline,
    StitchSpatial,
    TakeRank,
    Union,
)
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from stagemesh.spec.strategy import MeshAxis, StrategySpec, mesh_axis_kinds

if TYPE_CHECKING:
    MeshAxisKind: Any
    """The kinds of axes that are installed; made when it is first asked for."""

__all__ = [
    "Aggregation",
    "AllGather",
    "AxisTranslationError",
    "Broadcast",
    "Catalog",
    "Combine",
    "DiffusionParallelConfig",
    "DuplicateWithCondTag",
    "ExecutionType",
    "FanInByStage",
    "GatherDim",
    "HookCategory",
    "Host",
    "KernelSpec",
    "LayerHookSpec",
    "MeshAxis",
    "MeshAxisKind",
    "OmniParallelConfig",
    "Owner",
    "PartitionByHash",
    "PipelineConfig",
    "PipelineMicrobatch",
    "PlanInputs",
    "Policy",
    "RouteByExpert",
    "RouteByStage",
    "Routing",
    "ShardSequence",
    "ShardSpatial",
    "StageFacts",
    "StitchPipeline",
    "StitchSpatial",
    "StrategyApplyError",
    "StrategyApplyResult",
    "StrategyLoadError",
    "StrategySpec",
    "TakeRank",
    "Union",
    "apply_strategy_specs",
    "check_device_layout",
    "load_strategies",
    "translate_strategy_stack",
]


def __getattr__(name: str) -> object:
    """Make `MeshAxisKind` when it is first asked for."""
    if name == "MeshAxisKind":
        return mesh_axis_kinds()
    message = f"module `{__name__}` has no attribute `{name}`"
    raise AttributeError(message)
