"""Hand-made plans of `fake` engines, for tests and measurements of the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from stagemesh.plan.setup import RecoveryPlan, StageSetup
from stagemesh.plan.values import (
    AxisPlan,
    CheckpointPlan,
    DevicesPlan,
    EdgePlan,
    PatternPlan,
    Plan,
    RankPlan,
    ReplicaPlan,
    StagePlan,
)
from stagemesh.spec.frozen import frozen


@frozen
class FakeStage:
    """What differs between the stages of a test."""

    name: str
    """Its name."""
    replicas: int = 1
    """How many replicas it has."""
    policy: str = "round_robin"
    """How requests are spread over them."""
    final: str | None = None
    """Modality that it hands to the user."""
    args: Mapping[str, object] = field(default_factory=dict)
    """Its program."""
    engine: str = "fake"
    """Its engine."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Its environment."""
    sampling: Mapping[str, object] = field(default_factory=dict)
    """Its default request parameters."""
    sources: tuple[int, ...] | None = None
    """Stages that feed it; the one before it unless given."""
    recovery: RecoveryPlan = field(default_factory=RecoveryPlan)
    """What happens when a replica of it dies or hangs."""
    ranks: int = 1
    """Ranks of each replica."""
    host: int | None = None
    """Stage in whose processes it runs."""


def stage_plan(number: int, stage: FakeStage) -> StagePlan:
    """Write a stage as the planner would."""
    replicas = tuple(
        ReplicaPlan(index=index, ranks=_ranks(stage, index)) for index in range(stage.replicas)
    )
    sources = tuple(range(max(number - 1, 0), number)) if stage.sources is None else stage.sources
    return StagePlan(
        stage_id=number,
        name=stage.name,
        execution_type="llm_ar",
        engine=stage.engine,
        world_size=stage.ranks,
        policy=stage.policy,
        replicas=replicas,
        axes=_axes(stage),
        bindings=(),
        stage_args={},
        engine_args=stage.args,
        model_args={},
        sampling=stage.sampling,
        env=stage.env,
        memory=None,
        input_sources=sources,
        final_output_type=stage.final,
        owns_tokenizer=False,
        model_subdir=".",
        loader=None,
        values={},
        setup=StageSetup(
            executor="mp" if stage.ranks > 1 else "uni",
            recovery=stage.recovery,
            host=stage.host,
        ),
    )


def _ranks(stage: FakeStage, replica: int) -> tuple[RankPlan, ...]:
    first = replica * stage.ranks
    return tuple(
        RankPlan(
            rank=rank,
            device=first + rank,
            coords={axis.axis: rank for axis in _axes(stage)},
        )
        for rank in range(stage.ranks)
    )


def _axes(stage: FakeStage) -> tuple[AxisPlan, ...]:
    if stage.ranks == 1:
        return ()
    tp = AxisPlan(
        axis="tp",
        size=stage.ranks,
        label="tp",
        role="multiplies_ranks",
        groups=(tuple(range(stage.ranks)),),
        routing=PatternPlan(name="Broadcast", args={}),
        aggregation=PatternPlan(name="TakeRank", args={"rank": 0}),
        owner="engine",
        options={},
        traffic=None,
    )
    return (tp,)


def fake_plan(
    stages: Sequence[FakeStage],
    *,
    chunked: bool = True,
    bridge: str | None = None,
    arena_bytes: int = 1024 * 1024,
) -> Plan:
    """Write the plan of a pipeline of fake stages."""
    planned = tuple(stage_plan(number, stage) for number, stage in enumerate(stages))
    edges = tuple(
        EdgePlan(
            source=source,
            target=stage.stage_id,
            connector="in_process" if shares else "shared_memory",
            options={} if shares else {"arena_bytes": arena_bytes},
            payload_type="text",
            bridge=bridge,
            chunked=chunked,
        )
        for stage in planned
        for source in stage.input_sources
        for shares in [_process(planned[source]) == _process(stage)]
    )
    return Plan(
        pipeline="fakes",
        checkpoint=CheckpointPlan(path="/nowhere", config_hash=""),
        devices=DevicesPlan(kind="cpu", count=8, memory_bytes=None, imaginary=False),
        async_chunk=chunked,
        stages=planned,
        edges=edges,
        not_runnable=(),
        skipped_checks=(),
    )


def _process(stage: StagePlan) -> int:
    """The stage in whose processes it runs."""
    return stage.stage_id if stage.setup.host is None else stage.setup.host


def three_stages(**changes: tuple[int, str]) -> tuple[FakeStage, ...]:
    """Thinker (three outputs), talker and vocoder (echoes); `changes`: replicas and policy."""

    def stage(
        name: str, final: str | None = None, args: Mapping[str, object] | None = None
    ) -> FakeStage:
        replicas, policy = changes.get(name, (1, "round_robin"))
        return FakeStage(name=name, final=final, args=args or {}, replicas=replicas, policy=policy)

    return (
        stage("thinker", "text", {"num_outputs": 3, "output_bytes": 40_000}),
        stage("talker"),
        stage("vocoder", "data"),
    )
