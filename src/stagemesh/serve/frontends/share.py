"""What of a plan each frontend runs: the replicas of its groups, under the numbers that they have.

Pure. Groups, frontends and budgets stay whole in every share, so that whoever places sessions finds
its own by the number of its frontend.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stagemesh.plan.sessions import DuplexPlan
from stagemesh.plan.values import Plan

_NO_WARMUP: Final = -1


def share_of(plan: Plan, frontend: int) -> Plan:
    """Return the plan with the replicas that one of its frontends owns.

    A frontend that accepts no session has its replicas all the same, and computes nothing before
    the first one.
    """
    duplex = plan.session.duplex
    assert duplex is not None, "several frontends hold full-duplex sessions"
    groups = [duplex.groups[group].replicas for group in duplex.frontends[frontend].groups]
    owned = [frozenset(of_stage) for of_stage in zip(*groups, strict=True)]
    stages = tuple(
        replace(
            stage, replicas=tuple(each for each in stage.replicas if each.index in owned[position])
        )
        for position, stage in enumerate(plan.stages)
    )
    return replace(
        plan,
        stages=stages,
        launch=replace(plan.launch, api_server_count=1),
        session=replace(plan.session, duplex=_warmed(duplex, frontend)),
    )


def _warmed(duplex: DuplexPlan, frontend: int) -> DuplexPlan:
    if duplex.frontends[frontend].capacity:
        return duplex
    return replace(duplex, warmup_frames=min(duplex.warmup_frames, _NO_WARMUP))
