"""Turn by turn or full duplex, and everything that `duplex_session` says."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final, cast

from stagemesh.config.plain import plain_fields
from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.plan.report import Report
from stagemesh.plan.rules import frontends
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.rules.groups import Group, groups_of
from stagemesh.plan.sessions import DuplexPlan, FrontendPlan, GroupPlan, SessionPlan
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.duplex import DuplexModel
from stagemesh.spec.origin import Origin

_MODE: Final = "session_mode"
_SECTION: Final = "duplex_session"
_PLACED: Final = ("max_sessions_per_replica", "replica_groups")
"""What is said about groups of replicas."""


def is_duplex(context: RuleContext) -> bool:
    """Whether the pipeline serves full-duplex sessions: as was said, or as is its own way."""
    given, model = context.wide(_MODE), context.pipeline.duplex
    if given is not None:
        return given.value == "duplex"
    return model is not None and model.default_session_mode == "duplex"


def has_no_effect_yet(context: RuleContext) -> bool:
    """Whether the section would have an effect if the mode, which nobody gave, were given."""
    return context.wide(_MODE) is None and context.pipeline.duplex is not None


def session(context: RuleContext) -> Ruling:
    """Decide how the pipeline serves, and where sessions go."""
    report, model = Report(), context.pipeline.duplex
    report.add(*frontends.against_several(context))
    duplex: DuplexPlan | None = None
    if not is_duplex(context):
        report.add(*_idle_section(context))
    elif model is None:
        report.add(_no_duplex(context))
    else:
        duplex = _duplex(context, model, report)
    return Ruling(
        diagnostics=report.diagnostics,
        session=SessionPlan(
            mode="duplex" if is_duplex(context) else "turn",
            duplex=duplex,
        ),
    )


def _duplex(context: RuleContext, model: DuplexModel, report: Report) -> DuplexPlan | None:
    given = context.wide(_SECTION)
    entry = DuplexSession() if given is None else cast("DuplexSession", given.value)
    report.add(*_wrong_policy(context, entry, model))
    report.add(*frontends.against_hosts(context, entry))
    report.add(*frontends.against_duplex(context, entry, resumes=model.supports_session_resume))
    if report.failed:
        return None
    if entry.max_sessions_per_replica is None:
        alone = FrontendPlan(groups=(), quota=entry.max_sessions, capacity=entry.max_sessions)
        return _plan(entry, (), (alone,), can_resume=model.supports_session_resume)
    origin = functools.partial(_origin, context, "replica_groups")
    groups = groups_of(context, entry, origin, report)
    if groups is not None:
        report.add(*frontends.against_groups(context, groups, origin()))
    if groups is None or report.failed:
        return None
    divided = frontends.frontends_of(
        groups,
        entry.max_sessions,
        entry.max_sessions_per_replica,
        frontends.num_frontends(context),
    )
    report.add(*frontends.idle_frontends(divided, _origin(context, "max_sessions")))
    return _plan(entry, groups, divided, can_resume=model.supports_session_resume)


def _plan(
    entry: DuplexSession,
    groups: tuple[Group, ...],
    divided: tuple[FrontendPlan, ...],
    *,
    can_resume: bool,
) -> DuplexPlan:
    values: dict[str, Any] = plain_fields(entry)
    del values["replica_groups"]
    return DuplexPlan(
        groups=tuple(
            GroupPlan(replicas=group, frontend=frontends.owner(number, len(divided)))
            for number, group in enumerate(groups)
        ),
        frontends=divided,
        can_resume=can_resume,
        **values,
    )


def _no_duplex(context: RuleContext) -> Diagnostic:
    given = context.wide(_MODE)
    return Diagnostic(
        code="PL070",
        message=f"`{context.pipeline.model_type}` has no full-duplex sessions",
        origin=None if given is None else given.origin,
        help=f"write `{_MODE}: turn`, or leave it out",
    )


def _idle_section(context: RuleContext) -> Iterator[Diagnostic]:
    """Tell of a section that has no effect: deliberately so where the mode was written."""
    given, mode = context.wide(_SECTION), context.wide(_MODE)
    if given is None:
        return
    model = context.pipeline
    notes = () if mode is None else (Note(message=f"`{_MODE}` is `turn` here", origin=mode.origin),)
    yield Diagnostic(
        code="PL071",
        severity=Severity.ERROR if mode is None else Severity.WARNING,
        message=f"`{_SECTION}` has no effect where sessions take turns",
        origin=given.origin,
        notes=notes,
        help=f"`{model.model_type}` has no full-duplex sessions: leave the section out"
        if model.duplex is None
        else f"write `{_MODE}: duplex`, or leave the section out",
    )


def _wrong_policy(
    context: RuleContext, entry: DuplexSession, model: DuplexModel
) -> Iterator[Diagnostic]:
    if entry.replica_policy == "legacy":
        for name in _PLACED:
            if plain_fields(entry)[name] is not None:
                yield Diagnostic(
                    code="PL074",
                    message=f"`{_SECTION}.{name}` has no effect under `replica_policy: legacy`",
                    origin=_origin(context, name),
                    help="write `replica_policy: least_sessions`, or leave it out",
                )
    elif entry.max_sessions_per_replica is None:
        yield Diagnostic(
            code="PL072",
            message="`replica_policy: least_sessions` needs `max_sessions_per_replica`",
            origin=_origin(context, "replica_policy"),
            help="say how many sessions one replica may hold, at least `1`",
        )
    elif entry.max_sessions_per_replica > 1 and not model.supports_concurrent_sessions:
        yield Diagnostic(
            code="PL073",
            message=f"a replica of `{context.pipeline.model_type}` holds one session,"
            f" not `{entry.max_sessions_per_replica}`",
            origin=_origin(context, "max_sessions_per_replica"),
            help="write `max_sessions_per_replica: 1`, and start more replicas",
        )


def _origin(context: RuleContext, *path: str | int) -> Origin:
    """Where a key of the section was written, or else the section: only one that is there errs."""
    section = context.wide(_SECTION)
    assert section is not None
    return section.at(*path)
