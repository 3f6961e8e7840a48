"""Several frontends: which owns which groups of replicas, and how many sessions each may hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

from stagemesh.config.launch import LaunchOptions
from stagemesh.config.launch_rules import flag_name
from stagemesh.config.plain import plain_fields
from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.plan.rules.context import RuleContext
from stagemesh.plan.rules.groups import Group
from stagemesh.plan.sessions import FrontendPlan
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Origin
from stagemesh.spec.pipeline import ExecutionType

_COUNT: Final = "api_server_count"
_ALONE: Final = "write `--api-server-count 1`"
_DISTRIBUTING: Final = ("stage_id", "headless", "omni_master_address", "worker_backend")
"""Launch options by which stages run elsewhere."""


def num_frontends(context: RuleContext) -> int:
    """Return how many processes accept connections."""
    given = context.launch(_COUNT)
    return 1 if given is None else cast("int", given.value)


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


def against_several(context: RuleContext) -> Iterator[Diagnostic]:
    """Say what keeps a pipeline from having more than one frontend, whatever its sessions."""
    count, origin = num_frontends(context), _origin(context)
    if count == 1:
        return
    denoising = [
        draft.stage.model_stage
        for draft in context.drafts
        if draft.stage.execution_type is ExecutionType.DIFFUSION
    ]
    if denoising:
        yield Diagnostic(
            code="PL085",
            message=f"`{count}` frontends cannot serve the diffusion stage `{denoising[0]}`",
            origin=origin,
            help=_ALONE,
        )
    sleeping = [
        (draft.stage.model_stage, given.origin)
        for draft, given in context.each("enable_sleep_mode")
        if given.value is True
    ]
    if sleeping:
        names = ", ".join(f"`{name}`" for name, _ in sleeping)
        yield Diagnostic(
            code="PL085",
            message=f"`{count}` frontends cannot serve stages with `enable_sleep_mode`",
            origin=origin,
            notes=tuple(Note(message=f"`{name}` has it", origin=at) for name, at in sleeping),
            help=f"{_ALONE}, or switch it off for {names}",
        )


def _origin(context: RuleContext) -> Origin | None:
    given = context.launch(_COUNT)
    return None if given is None else given.origin


def against_hosts(context: RuleContext, entry: DuplexSession) -> Iterator[Diagnostic]:
    """Groups of replicas lie on one host: their counters are in the frontends."""
    defaults = LaunchOptions()
    for name in _DISTRIBUTING:
        given = context.launch(name)
        if (
            given is not None
            and given.value != plain_fields(defaults)[name]
            and entry.replica_policy == "least_sessions"
        ):
            yield Diagnostic(
                code="PL109",
                message="`replica_policy: least_sessions` needs all stages in one start",
                origin=given.origin,
                help=f"leave `{flag_name(name)}` out, or write `replica_policy: legacy`",
            )
            return


def against_duplex(
    context: RuleContext, entry: DuplexSession, *, resumes: bool
) -> Iterator[Diagnostic]:
    """Say what keeps full-duplex sessions from having more than one frontend."""
    count, origin = num_frontends(context), _origin(context)
    if count == 1:
        return
    if entry.replica_policy == "legacy":
        yield Diagnostic(
            code="PL080",
            message=f"`{count}` frontends need `replica_policy: least_sessions`",
            origin=origin,
            help=f"{_ALONE}, or that into `duplex_session`",
        )
    if resumes:
        yield Diagnostic(
            code="PL081",
            message=f"`{count}` frontends cannot serve `{context.pipeline.model_type}`,"
            " whose sessions can be resumed",
            origin=origin,
            help=f"who comes back may reach another frontend; {_ALONE}",
        )


def against_groups(
    context: RuleContext, groups: Sequence[Group], origin: Origin
) -> Iterator[Diagnostic]:
    """Say where groups cannot be divided among the frontends."""
    frontends = num_frontends(context)
    if frontends > len(groups):
        yield Diagnostic(
            code="PL082",
            message=f"`{frontends}` frontends are more than the `{len(groups)}` groups of replicas",
            origin=_origin(context),
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
