"""Plans and systems of full-duplex sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stagemesh.plan.rules.frontends import frontends_of
from stagemesh.plan.sessions import DuplexPlan, FrontendPlan, GroupPlan, SessionPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.session import Session
from stagemesh.testing.fake_plan import FakeStage, fake_plan

SHARED = [(0, 0), (1, 0)]
"""Two groups with a replica of their own in the first stage, and one of both in the second."""


def duplex_plan(
    groups: Sequence[tuple[int, ...]],
    *,
    sessions: int = 100,
    cap: int | None = 2,
    frontends: int = 1,
    **changes: Any,  # noqa: ANN401  fields of any type
) -> DuplexPlan:
    """Sessions as the planner plans them; without a cap those of the `legacy` policy."""
    alone = FrontendPlan(groups=(), quota=sessions, capacity=sessions)
    divided = (alone,) if cap is None else frontends_of(groups, sessions, cap, frontends)
    plan = DuplexPlan(
        replica_policy="legacy" if cap is None else "least_sessions",
        max_sessions=sessions,
        max_sessions_per_replica=cap,
        groups=tuple(
            GroupPlan(replicas=group, frontend=number % frontends)
            for number, group in enumerate(() if cap is None else groups)
        ),
        frontends=divided,
        idle_ttl_s=300.0,
        disconnect_grace_s=30.0,
        reaper_interval_s=5.0,
        resume_replay_ttl_s=60.0,
        resume_replay_max_bytes_per_session=2**20,
        max_pending_input_bytes_per_session=2**20,
        max_pending_turns_per_session=4,
        completed_append_cache_size=16,
        server_vad_model_path=None,
        warmup_frames=0,
        can_resume=True,
    )
    return replace(plan, **changes)


def talking(
    duplex: DuplexPlan, replicas: Sequence[int], *programs: dict[str, object], policy: str = ""
) -> Plan:
    """Stages that echo, the last one to the user, with so many replicas; `programs` in order."""
    stages = [
        FakeStage(
            name=f"stage{number}",
            replicas=count,
            final="text" if number == len(replicas) - 1 else None,
            args=programs[number] if number < len(programs) else {},
            policy=policy or "round_robin",
        )
        for number, count in enumerate(replicas)
    ]
    return replace(fake_plan(stages), session=SessionPlan(mode="duplex", duplex=duplex))


async def said(session: Session, prompt: str, **options: Any) -> list[tuple[str | None, object]]:  # noqa: ANN401  as declared
    """Run a turn; return its texts and the numbers of the turn that the last stage counts."""
    running = session.submit(prompt, **options)
    try:
        return [(output.text, output.payload.meta["turn"]) async for output in running]
    finally:
        running.close()
