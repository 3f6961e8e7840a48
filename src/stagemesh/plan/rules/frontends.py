"""Several frontends: which owns which groups of replicas, and how many sessions each may hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.plan.rules.context import RuleContext
from stagemesh.plan.rules.groups import Group
from stagemesh.plan.sessions import FrontendPlan
from stagemesh.spec.diagnostic import Diagnostic, Severity
from stagemesh.spec.origin import Layer, Origin

ORIGIN: Final = Origin(layer=Layer.GLOBAL, source="--api-server-count")
"""The flag that says how many there are."""


def owner(group: int, frontends: int) -> int:
    """Return the frontend that places sessions in a group."""
    return group % frontends


def quota(frontend: int, sessions: int, frontends: int) -> int:
    """Return a frontend's part of all sessions; nobody lends one."""
    return sessions // frontends + (frontend < sessions % frontends)


def capacity(owned: Sequence[Group], own_quota: int, per_replica: int) -> int:
    """Return how many sessions fit: the quota, within the least that the owned replicas hold."""
    replicas = min((len(set(of_stage)) for of_stage in zip(*owned, strict=True)), default=0)
    return min(own_quota, per_replica * replicas)


def frontends_of(
    groups: Sequence[Group], sessions: int, per_replica: int, frontends: int
) -> tuple[FrontendPlan, ...]:
    """Divide groups and sessions among the frontends."""
    divided = []
    for frontend in range(frontends):
        owned = range(frontend, len(groups), frontends)
        share = quota(frontend, sessions, frontends)
        fits = capacity([groups[group] for group in owned], share, per_replica)
        divided.append(FrontendPlan(groups=tuple(owned), quota=share, capacity=fits))
    return tuple(divided)


def against_duplex(
    context: RuleContext, entry: DuplexSession, *, resumes: bool
) -> Iterator[Diagnostic]:
    """Say what keeps full-duplex sessions from having more than one frontend."""
    count = context.num_frontends
    if count == 1:
        return
    if entry.replica_policy == "legacy":
        yield Diagnostic(
            code="PL080",
            message=f"`{count}` frontends need `replica_policy: least_sessions`",
            origin=ORIGIN,
            help="write it into `duplex_session`, or `--api-server-count 1`",
        )
    if resumes:
        yield Diagnostic(
            code="PL081",
            message=f"`{count}` frontends cannot serve `{context.pipeline.model_type}`,"
            " whose sessions can be resumed",
            origin=ORIGIN,
            help="who comes back may reach another frontend; write `--api-server-count 1`",
        )


def against_groups(groups: Sequence[Group], frontends: int, origin: Origin) -> Iterator[Diagnostic]:
    """Say where groups cannot be divided among the frontends."""
    if frontends > len(groups):
        yield Diagnostic(
            code="PL082",
            message=f"`{frontends}` frontends are more than the `{len(groups)}` groups of replicas",
            origin=ORIGIN,
            help=f"write `--api-server-count {len(groups)}` or less, or start more replicas",
        )
        return
    first: dict[tuple[int, int], int] = {}
    for number, group in enumerate(groups):
        for stage, replica in enumerate(group):
            other = first.setdefault((stage, replica), number)
            if owner(other, frontends) != owner(number, frontends):
                yield Diagnostic(
                    code="PL083",
                    message=f"groups `{other}` and `{number}` share replica `{replica}` of stage"
                    f" `{stage}` and have two frontends",
                    origin=origin,
                    help=f"frontend of a group is its number modulo `{frontends}`; reorder them",
                )
                return


def idle_frontends(divided: Sequence[FrontendPlan], origin: Origin) -> Iterator[Diagnostic]:
    """Warn of frontends that can never hold a session."""
    idle = [number for number, frontend in enumerate(divided) if frontend.quota == 0]
    if idle:
        yield Diagnostic(
            code="PL084",
            severity=Severity.WARNING,
            message=f"`{len(idle)}` of `{len(divided)}` frontends accept no session",
            origin=origin,
            help=f"`max_sessions` is divided evenly; write at least `{len(divided)}`",
        )
