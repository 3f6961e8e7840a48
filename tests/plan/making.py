"""Settings, pipelines and requests made by hand, so that planning is tested without any file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.settings import AxisSettings, Settings, Sourced, StageSettings
from stagemesh.connectors.shared_memory import CONNECTOR
from stagemesh.plan.build import PlanRequest, PlanResult, build
from stagemesh.plan.devices import Devices
from stagemesh.plan.values import CheckpointPlan, Plan
from stagemesh.spec.axis import Finding
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.engine import EngineSpec, MemoryEstimate, MemoryInput
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig, StagePipelineConfig
from stagemesh.spec.registry import AXES

CHECKPOINT: Final = CheckpointPlan(path="/models/toy", config_hash="abc")
SLOTS: Final = Devices(kind="cpu", count=None, memory_bytes=None, shares_memory=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyOptions:
    """Arguments of the toy engine."""

    max_num_seqs: int = 8
    """Refused above 1000."""

    def __post_init__(self) -> None:
        """Refuse what a type cannot."""
        if self.max_num_seqs > 1000:
            message = "`max_num_seqs` is at most `1000`"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyParams:
    """Request parameters of the toy engine."""

    temperature: float = 0.0
    """Any number."""
    stop_token_ids: tuple[int, ...] = ()
    """A list."""
    max_tokens: int | None = None
    """A number that the planner knows."""


def _memory(given: MemoryInput) -> MemoryEstimate | None:
    if given.facts.weight_bytes is None:
        return None
    return MemoryEstimate(weights=given.facts.weight_bytes, cache=2, workspace=1)


def _check(given: MemoryInput) -> Iterator[Finding]:
    if given.args == ToyOptions(max_num_seqs=13):
        yield Finding(code="TY001", message="`13` is too many", help="less", field="max_num_seqs")
        yield Finding(code="TY002", message="it is the kind of device", field="elsewhere")


TOY: Final = EngineSpec(
    name="toy",
    keeps_sessions=True,
    summary="executes `tp` and runs everything but diffusion",
    runs=frozenset({ExecutionType.LLM_AR, ExecutionType.LLM_GENERATION}),
    default_for=frozenset({ExecutionType.LLM_AR, ExecutionType.LLM_GENERATION}),
    executes=frozenset({"tp"}),
    options=ToyOptions,
    params=ToyParams,
    memory=_memory,
    check=_check,
    factory="nowhere:factory",
)
PICTURE: Final = EngineSpec(
    name="picture",
    summary="runs diffusion, and is the default for nothing",
    runs=frozenset({ExecutionType.DIFFUSION}),
    factory="nowhere:factory",
)


def catalog(*pipelines: PipelineConfig) -> Catalog:
    """The installed axes with the toy engines and the shared memory connector."""
    return Catalog(
        axes={axis.name: axis for axis in AXES.declarations()},
        engines={"toy": TOY, "picture": PICTURE},
        connectors=dict.fromkeys(CONNECTOR.config_names, CONNECTOR),
        models=tuple(Model(pipeline=pipeline, package="nowhere") for pipeline in pipelines),
    )


def place(text: str = "s.yaml", layer: Layer = Layer.STRATEGY, line: int = 1) -> Origin:
    """Somewhere in a file."""
    return Origin(layer=layer, source=text, line=line, column=3)


def sourced(value: object) -> Sourced[object]:
    """Return a value that was written somewhere."""
    return Sourced(value=value, origin=place())


def axis(
    name: str, size: int | None, routing: Policy | None = None, **options: object
) -> AxisSettings:
    """One axis as a strategy file would give it."""
    return AxisSettings(
        axis=name,
        size=None if size is None else Sourced(value=size, origin=place()),
        routing=None if routing is None else Sourced(value=routing, origin=place()),
        options={key: sourced(value) for key, value in options.items()},
        origin=place(),
    )


def stage(stage_id: int, name: str, **changes: object) -> StagePipelineConfig:
    """One stage that takes its input from the one before it."""
    given: dict[str, object] = {"input_sources": (stage_id - 1,) if stage_id else (), **changes}
    return StagePipelineConfig(stage_id=stage_id, model_stage=name, **given)  # type: ignore[arg-type]


def pipeline(*stages: StagePipelineConfig, planning_only: str | None = None) -> PipelineConfig:
    """A pipeline of these stages."""
    return PipelineConfig(
        model_type="toy",
        summary="a toy",
        stages=stages,
        default_deploy_config_name="toy",
        planning_only=planning_only,
    )


def solo(kind: ExecutionType = ExecutionType.LLM_AR, **changes: object) -> PipelineConfig:
    """A pipeline of one stage, `thinker`."""
    return pipeline(stage(0, "thinker", execution_type=kind, **changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was said about one stage."""

    axes: Sequence[AxisSettings] = ()
    """Its axes."""
    fields: Mapping[str, object] | None = None
    """Its other fields."""


def request(
    model: PipelineConfig,
    said: Mapping[str, Said] | None = None,
    *,
    facts: StageFacts | None = None,
    devices: Devices = SLOTS,
    settings: Settings | None = None,
) -> PlanRequest:
    """All that a plan is made from; `facts` hold for every stage."""
    said = said or {}
    stages = tuple(
        StageSettings(
            stage_id=each.stage_id,
            name=each.model_stage,
            axes={given.axis: given for given in said.get(each.model_stage, Said()).axes},
            fields={
                name: sourced(value)
                for name, value in (said.get(each.model_stage, Said()).fields or {}).items()
            },
        )
        for each in model.stages
    )
    base = settings or Settings(fields={}, connectors={}, stages=())
    return PlanRequest(
        pipeline=model,
        settings=Settings(fields=base.fields, connectors=base.connectors, stages=stages),
        checkpoint=CHECKPOINT,
        facts={each.model_stage: facts or StageFacts() for each in model.stages},
        devices=devices,
    )


def attempt(given: PlanRequest) -> PlanResult:
    """Build with the toy catalog."""
    return build(given, catalog(given.pipeline))


def planned(given: PlanRequest) -> Plan:
    """Build what must succeed."""
    result = attempt(given)
    assert result.plan is not None, result.diagnostics
    return result.plan


def errors(given: PlanRequest) -> list[Diagnostic]:
    """Build what must fail."""
    result = attempt(given)
    assert result.plan is None
    return [diagnostic for diagnostic in result.diagnostics if diagnostic.is_error]


def codes(given: PlanRequest) -> list[str]:
    """Return the codes of all errors of what must fail."""
    return [diagnostic.code for diagnostic in errors(given)]
