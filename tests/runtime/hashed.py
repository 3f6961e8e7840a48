"""Plans whose replicas are chosen by hash."""

from __future__ import annotations

from dataclasses import replace

from stagemesh.plan.values import AxisPlan, PatternPlan, Plan
from stagemesh.testing.fake_plan import FakeStage, fake_plan


def hashed(replicas: int, **options: object) -> Plan:
    """One stage that is routed by hash."""
    plan = fake_plan([FakeStage(name="only", final="text", replicas=replicas, policy="hash")])
    pattern = PatternPlan(name="RouteByStage", args={"policy": "hash"})
    axis = AxisPlan(
        axis="stage_replica",
        size=replicas,
        label="stage_replica",
        role="multiplies_replicas",
        groups=(),
        routing=pattern,
        aggregation=pattern,
        owner="delegated",
        options=options,
        traffic=None,
    )
    return replace(plan, stages=(replace(plan.stages[0], axes=(axis,)),))
