"""Plans whose replicas are chosen by hash."""

from __future__ import annotations

from dataclasses import replace

from stagemesh.plan.values import PatternPlan, Plan
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.runtime.axis_plans import axis_plan


def hashed(replicas: int, **options: object) -> Plan:
    """One stage that is routed by hash."""
    plan = fake_plan([FakeStage(name="only", final="text", replicas=replicas, policy="hash")])
    pattern = PatternPlan(name="RouteByStage", args={"policy": "hash"})
    axis = axis_plan(
        "stage_replica", replicas, "multiplies_replicas", options=options, pattern=pattern
    )
    return replace(plan, stages=(replace(plan.stages[0], axes=(axis,)),))
