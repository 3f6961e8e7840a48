"""Strategies from Python: what they come to, without starting anything.

Thin over the planner: each function writes the strategies as a file has them, plans, and says the
result in the words of `OmniParallelConfig`. What is wrong is raised, all of it at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeAlias, cast

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import check
from stagemesh.config.document import Source, read_mapping
from stagemesh.config.host import Host, read_host
from stagemesh.config.inputs import ConfigInput, PlanInputs
from stagemesh.config.lookup import read_file
from stagemesh.config.opened import OpenedFile
from stagemesh.config.patch import Patch
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.plain import plain_fields
from stagemesh.config.schema import DeviceList, Size
from stagemesh.config.settings import Sourced
from stagemesh.config.stages import Stages
from stagemesh.config.strategy import EXPECTED, read_stacks, read_strategy
from stagemesh.config.strategy_specs import SOURCE, STACK, STACKS, file_form, spec_of, written
from stagemesh.errors import AxisTranslationError, StrategyApplyError, StrategyLoadError
from stagemesh.plan.alone import one_stage, plan_alone
from stagemesh.plan.arguments import Argument, check_arguments
from stagemesh.plan.devices import Devices
from stagemesh.plan.export.stage_fields import axis_fields
from stagemesh.plan.make import make
from stagemesh.plan.place import place
from stagemesh.plan.report import Report
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.plan.wish import DeviceIds, Wish
from stagemesh.plan.world import Mesh, mesh_of, world_size
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from stagemesh.spec.strategy import StrategySpec
from stagemesh.spec.unset import Unset

_ANY_DEVICE: Final = 10**5
_CONFIG: Final = (str, Path, OpenedFile, Mapping)
"""The types of `ConfigInput`."""
_KINDS: Final = {kind.value: kind for kind in ExecutionType}
_ANY_KIND: Final = " or ".join(f"`{name}`" for name in _KINDS)

Strategies: TypeAlias = Mapping[str, Sequence[StrategySpec]]
"""Names of stages, each with its axes."""


@frozen
class OmniParallelConfig:
    """What the axes of one stage come to, in the words of stage fields."""

    tensor_parallel_size: int = 1
    """Ranks that share each layer."""
    data_parallel_size: int = 1
    """Groups of ranks that serve independent requests."""
    pipeline_parallel_size: int = 1
    """Parts of the layers, one after the other."""
    enable_expert_parallel: bool = False
    """Whether experts are spread over the ranks."""
    ulysses_degree: int = 1
    """Ranks that share a sequence by heads."""
    ring_degree: int = 1
    """Ranks that pass keys and values of a sequence round."""
    allgather_degree: int = 1
    """Ranks that gather keys and values of a sequence."""
    cfg_parallel_size: int = 1
    """Ranks that share the branches of guidance."""
    vae_patch_parallel_size: int = 1
    """Ranks that decode parts of a picture."""
    use_hsdp: bool = False
    """Whether weights lie in shards."""
    hsdp_shard_size: int = -1
    """Ranks that share one copy of the weights."""
    hsdp_replicate_size: int = 1
    """Copies of the weights."""
    stage_replica_size: Size = 1
    """Copies of the stage."""
    omni_lb_policy: str | None = None
    """How requests are spread over the copies, as the flag says it; `None` for one copy."""
    l1_owners: Mapping[str, str] = field(default_factory=dict)
    """Who carries the routing of each axis out: `engine` or `delegated`."""
    mesh: Mesh = ()
    """The axes that bring the ranks of one copy, slowest first."""

    @property
    def world_size(self) -> int:
        """Ranks of one copy of the stage; raises `StrategyApplyError` when a field is wrong."""
        self.check()
        return world_size(self.mesh)

    def check(self) -> None:
        """Raise `StrategyApplyError` with every field that has another type than it says."""
        where = Place(located=Nowhere(source=type(self).__name__, layer=Layer.GLOBAL))
        wrong = check(OmniParallelConfig, plain_fields(self), where).diagnostics
        if wrong:
            raise StrategyApplyError(wrong)


@frozen
class StrategyApplyResult:
    """What strategies come to on a model."""

    stages: Mapping[str, OmniParallelConfig]
    """Every stage of the model by name."""
    omni_lb_policy: str | None
    """The policy that all stages with copies have in common, or `None`."""
    warnings: tuple[Diagnostic, ...]
    """What was found and is no error."""


def load_strategies(
    given: ConfigInput, *, catalog: Catalog | None = None
) -> dict[str, tuple[StrategySpec, ...]]:
    """Read a strategy file, or the same as a mapping; raises `StrategyLoadError`."""
    check_arguments(
        "load_strategies",
        StrategyLoadError,
        Argument(name="given", value=given, kinds=_CONFIG, expected="a path or a mapping"),
        _catalog_argument(catalog),
    )
    catalog = _known(catalog)
    run = Run()
    source = Source(name=SOURCE, layer=Layer.STRATEGY, expected=EXPECTED)
    if isinstance(given, Mapping):
        document = read_mapping(file_form(given, catalog.axes, run.findings), source, run.findings)
    else:
        document = read_file(given, replace(source, name=str(given)), run.findings)
    stacks = (
        [] if document is None else read_stacks(document, Stages(pipeline=None), catalog.axes, run)
    )
    if run.findings:
        raise StrategyLoadError(run.findings)
    return {stack.name: tuple(map(spec_of, stack.entries)) for stack in stacks}


def translate_strategy_stack(
    specs: Sequence[StrategySpec],
    *,
    stage: str = "stage",
    execution_type: ExecutionType | str = ExecutionType.LLM_AR,
    facts: StageFacts | None = None,
    catalog: Catalog | None = None,
) -> OmniParallelConfig:
    """Say what the axes of one stage come to; raises `AxisTranslationError`.

    `execution_type` is a member of `ExecutionType` or its text, such as `diffusion`.
    """
    kind = _KINDS.get(execution_type) if isinstance(execution_type, str) else execution_type
    check_arguments(
        "translate_strategy_stack",
        AxisTranslationError,
        Argument(name="specs", value=specs, kinds=(list, tuple), expected=STACK),
        Argument(name="stage", value=stage, kinds=(str,), expected="text"),
        Argument(
            name="execution_type",
            value=execution_type if kind is None else kind,
            kinds=(ExecutionType,),
            expected=_ANY_KIND,
        ),
        Argument(name="facts", value=facts, kinds=(StageFacts, NoneType), expected="`StageFacts`"),
        _catalog_argument(catalog),
    )
    assert isinstance(kind, ExecutionType)
    catalog = _known(catalog)
    pipeline = one_stage(stage, kind)
    run = Run()
    patches = _patches({stage: specs}, pipeline, catalog, run)
    known = None if facts is None else {stage: facts}
    result = plan_alone(pipeline, patches, run, catalog=catalog, facts=known)
    if result.plan is None:
        raise AxisTranslationError(result.diagnostics)
    return parallel_config(result.plan.stages[0], catalog)


def apply_strategy_specs(
    target: PlanInputs | PipelineConfig,
    specs: Strategies,
    *,
    host: Host | None = None,
    catalog: Catalog | None = None,
) -> StrategyApplyResult:
    """Lay strategies over a model with its files, or over a pipeline alone.

    Raises `StrategyApplyError` with everything that stands against the whole.
    """
    check_arguments(
        "apply_strategy_specs",
        StrategyApplyError,
        Argument(
            name="target",
            value=target,
            kinds=(PlanInputs, PipelineConfig),
            expected="`PlanInputs` or a `PipelineConfig`",
        ),
        Argument(name="specs", value=specs, kinds=(Mapping,), expected=STACKS),
        Argument(name="host", value=host, kinds=(Host, NoneType), expected="a `Host`"),
        _catalog_argument(catalog),
    )
    catalog = _known(catalog)
    run = Run()
    if isinstance(target, PipelineConfig):
        patches = _patches(specs, target, catalog, run)
        result = plan_alone(target, patches, run, catalog=catalog)
        plan, diagnostics = result.plan, result.diagnostics
    else:
        if not isinstance(target.strategy_config, Unset):
            run.findings.append(_two_strategies())
        given = written(specs, catalog.axes, run.findings)
        inputs = replace(target, strategy_config=given)
        made = make(inputs, read_host() if host is None else host, catalog)
        plan, diagnostics = made.plan, (*run.findings, *made.diagnostics)
    if plan is None or run.findings:
        raise StrategyApplyError(diagnostics)
    return _result(plan, diagnostics, catalog)


def check_device_layout(
    devices: str | None, config: OmniParallelConfig, *, stage: str = "stage"
) -> tuple[DeviceIds, ...]:
    """Return the devices of every copy of a stage; raises `StrategyApplyError`.

    `devices` lists one copy's, or those of all copies; `None` leaves the choice to the planner.
    """
    check_arguments(
        "check_device_layout",
        StrategyApplyError,
        Argument(
            name="config",
            value=config,
            kinds=(OmniParallelConfig,),
            expected="an `OmniParallelConfig`",
        ),
        Argument(name="stage", value=stage, kinds=(str,), expected="text"),
    )
    config.check()
    origin = Origin(layer=Layer.STAGE, source="devices")
    here = Place(located=Nowhere(source="devices"), label=f"{stage}.devices")
    if devices is not None and (wrong := check(DeviceList, devices, here).diagnostics):
        raise StrategyApplyError(wrong)
    wish = Wish(
        stage_id=0,
        stage=stage,
        world=config.world_size,
        num_replicas=config.stage_replica_size,
        listed=None if devices is None else Sourced(value=devices, origin=origin),
        rank_bytes=None,
    )
    report = Report()
    count = None if devices is None else _ANY_DEVICE  # other stages may use the ids in between
    slots = Devices(kind="cpu", count=count, memory_bytes=None)
    placement = place([wish], slots, report)
    if report.failed:
        raise StrategyApplyError(report.diagnostics)
    return placement.replicas[0]


def parallel_config(stage: StagePlan, catalog: Catalog) -> OmniParallelConfig:
    """Say the layout of a planned stage in the words of stage fields."""
    axes = [catalog.axes[each.axis] for each in stage.axes]
    known = {item.name for item in fields(OmniParallelConfig)}
    said = {
        name: value
        for each, axis in zip(stage.axes, axes, strict=True)
        for name, value in axis_fields(each, axis).fields.items()
        if name in known
    }
    replicas = len(stage.replicas)
    return OmniParallelConfig(
        **cast("dict[str, Any]", said),
        stage_replica_size=replicas,
        omni_lb_policy=Policy(stage.policy).flag if replicas > 1 else None,
        l1_owners={each.axis: each.owner for each in stage.axes},
        mesh=mesh_of(axes, {each.axis: each.size for each in stage.axes}),
    )


def _catalog_argument(catalog: object) -> Argument:
    kinds = (Catalog, NoneType)
    return Argument(name="catalog", value=catalog, kinds=kinds, expected="a `Catalog`")


def _known(catalog: Catalog | None) -> Catalog:
    return Catalog.installed() if catalog is None else catalog


def _patches(
    specs: Strategies, pipeline: PipelineConfig, catalog: Catalog, run: Run
) -> list[Patch]:
    """Read strategies that are no file."""
    source = Source(name=SOURCE, layer=Layer.STRATEGY, expected=EXPECTED)
    given = written(specs, catalog.axes, run.findings)
    document = read_mapping(given, source, run.findings)
    assert document is not None
    return read_strategy(document, Stages(pipeline=pipeline), catalog.axes, run)


def _two_strategies() -> Diagnostic:
    return Diagnostic(
        code="AX053",
        message=f"`{SOURCE}` of the inputs and `specs` are two strategies",
        origin=Origin(layer=Layer.STRATEGY, source=SOURCE),
        help=f"leave `{SOURCE}` out, or read it with `load_strategies` and join both",
    )


def _result(plan: Plan, diagnostics: Sequence[Diagnostic], catalog: Catalog) -> StrategyApplyResult:
    stages = {stage.name: parallel_config(stage, catalog) for stage in plan.stages}
    policies = {config.omni_lb_policy for config in stages.values()} - {None}
    return StrategyApplyResult(
        stages=stages,
        omni_lb_policy=policies.pop() if len(policies) == 1 else None,
        warnings=tuple(diagnostics),
    )
