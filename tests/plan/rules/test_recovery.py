"""What happens when a replica dies or hangs: what is usual, what was said, and what is shown."""

from __future__ import annotations

from dataclasses import replace

from stagemesh.plan.render import plan_text
from stagemesh.plan.setup import RecoveryPlan
from tests.plan.rules.toys import TWO, Toy, listed

LIMITS = {"max_restarts": 50, "restart_window": 60, "restart_delay": 0}


def test_a_stage_recovers_by_itself_unless_told(toy: Toy) -> None:
    """Three restarts in ten minutes; the plan does not speak of what is always so."""
    plan = toy.plan(listed({}))
    assert plan.stages[0].setup.recovery == RecoveryPlan(
        restart="on_failure",
        max_restarts=3,
        restart_window=600,
        restart_delay=0.5,
        step_timeout=300,
    )
    assert "started again" not in plan_text(plan)
    assert plan.not_runnable == ()


def test_the_root_speaks_for_every_stage_and_an_entry_for_one(toy: Toy) -> None:
    """An entry wins over the root, the plan shows it, and a saved plan keeps it."""
    toy = replace(toy, model=TWO)
    plan = toy.plan({**LIMITS, "step_timeout": 2.5, **listed({}, {"restart": "never"})})
    first, second = (stage.setup.recovery for stage in plan.stages)
    assert first == RecoveryPlan(
        max_restarts=50, restart_window=60, restart_delay=0, step_timeout=2.5
    )
    assert second == replace(first, restart="never")
    shown = plan_text(plan)
    assert "a replica is started again up to 50 times in 60 s, after 0 s\n" in shown
    assert "a replica that died is not started again\n" in shown
    assert "a step may take 2.5 s\n" in shown
    assert plan.not_runnable == ()
    toy.keeps(plan)
