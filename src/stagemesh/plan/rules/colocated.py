"""Stages that share processes: what they must have in common, and what may be between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stagemesh.config.launch_rules import flag_name
from stagemesh.config.plain import plain_fields
from stagemesh.config.settings import Sourced
from stagemesh.config.stages import Stages
from stagemesh.plan.colocate import FIELD, hosts_of, named_of, share_process
from stagemesh.plan.edges import edges_of, named_connectors
from stagemesh.plan.pins import bound_devices
from stagemesh.plan.report import Report
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.rules.session import is_duplex
from stagemesh.plan.stack import StackedAxis
from stagemesh.plan.stage import StageDraft
from stagemesh.plan.words import value_text
from stagemesh.spec.axis import WorldRole
from stagemesh.spec.connector import Reach
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin

_BACKEND: Final = "distributed_executor_backend"
_OF_PROCESS: Final[Mapping[str, object]] = {
    "env": {},
    "numa_bind": False,
    "numa_bind_nodes": None,
    "numa_bind_cpus": None,
    "restart": "on_failure",
    "max_restarts": None,
    "restart_window": None,
    "restart_delay": None,
}
"""Fields that speak of a process, with what it means to leave them out."""


@frozen
class _Side:
    """What one of two stages has."""

    value: object
    """The value, or what it means to leave it out."""
    origin: Origin | None = None
    """Where it was given, if anybody did."""

    @property
    def shown(self) -> str:
        """It in words; of variables the names alone, for a value may be a secret."""
        if isinstance(self.value, Mapping):
            return ", ".join(self.value) or "none"
        return value_text(self.value)


def colocated(context: RuleContext) -> Ruling:
    """Decide who is started in whose processes."""
    named = named_of(context.pipeline, context.settings)
    hosts = hosts_of(named)
    drafts = {draft.stage_id: draft for draft in context.drafts}
    found = [*_nowhere(context, named, hosts), *_reaching_too_short(context, hosts)]
    for draft in context.drafts:
        if draft.stage_id in {*hosts, *hosts.values()} and draft.is_sound:
            found += _of_several_processes(context, draft)
    for guest, host in hosts.items():
        if drafts[guest].is_sound and drafts[host].is_sound:
            found += _differing(context, drafts[guest], drafts[host])
    if hosts:
        found += _elsewhere(context, drafts[min(hosts)])
    return Ruling(diagnostics=tuple(found), hosts=hosts)


def _nowhere(
    context: RuleContext, named: Mapping[int, int | None], hosts: Mapping[int, int]
) -> Iterator[Diagnostic]:
    """Names of no stage, and circles, which are told once each."""
    told: set[int] = set()
    for draft, given in context.each(FIELD):
        stage, name = draft.stage_id, draft.stage.model_stage
        if named.get(stage, stage) is None:
            yield Diagnostic(
                code="PL140",
                message=f"`{name}` is to share processes with `{given.value}`, which is no stage",
                origin=given.origin,
                help=Stages(pipeline=context.pipeline).help_for(str(given.value)),
            )
            continue
        circle = () if stage in hosts else _circle(named, stage)
        if stage in circle and stage not in told:
            told.update(circle)
            others = [each for each in context.drafts if each.stage_id in circle[1:]]
            yield Diagnostic(
                code="PL141",
                message=f"`{FIELD}` leads from `{name}` back to `{name}`: no stage is the host",
                origin=given.origin,
                notes=tuple(
                    Note(
                        message=f"`{each.stage.model_stage}` is part of the circle",
                        origin=context.origin(each, FIELD),
                    )
                    for each in others
                ),
                help=f"leave `{FIELD}` out at the stage that is to be the host",
            )


def _circle(named: Mapping[int, int | None], stage: int) -> tuple[int, ...]:
    """Return the stages that come round to `stage` again, it first; none where it only leads in."""
    way = [stage]
    at = named.get(stage)
    while at is not None and at not in way:
        way.append(at)
        at = named.get(at)
    return tuple(way) if at == stage else ()


def _of_several_processes(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    """A stage whose replicas are more than a process each."""
    name, spec = draft.stage.model_stage, draft.choice.spec
    why = None
    origin = context.origin(draft, FIELD)
    notes: tuple[Note, ...] = ()
    if draft.stack.world > 1:
        why = f"a replica of it has `{draft.stack.world}` ranks"
        notes = tuple(item.set_here for item in draft.stack.factors)
        origin = origin or notes[0].origin
    elif draft.choice.value(_BACKEND) not in (None, "uni"):
        why = f"it is started by `{draft.choice.value(_BACKEND)}`"
        origin = context.origin(draft, _BACKEND) or origin
    elif spec is not None and spec.owns_ranks:
        why = f"engine `{spec.name}` starts processes itself"
    if why is not None:
        yield Diagnostic(
            code="PL142",
            message=f"`{name}` cannot share its processes: {why}",
            origin=origin,
            notes=notes,
            help=f"a stage that shares a process runs in it whole: leave `{FIELD}` out, or that",
        )


def _differing(context: RuleContext, guest: StageDraft, host: StageDraft) -> Iterator[Diagnostic]:
    """What both say of the one process that they share, where that is not the same."""
    for what, one, other in _pairs(context, guest, host):
        if one.value != other.value:
            yield Diagnostic(
                code="PL143",
                message=f"`{guest.stage.model_stage}` runs in the processes of"
                f" `{host.stage.model_stage}`, and their {what} differ",
                origin=context.origin(guest, FIELD),
                notes=tuple(
                    Note(
                        message=f"`{draft.stage.model_stage}`: {said.shown}",
                        origin=said.origin,
                    )
                    for draft, said in ((guest, one), (host, other))
                ),
                help="say the same for both, or leave it out where both can do without",
            )


def _pairs(
    context: RuleContext, guest: StageDraft, host: StageDraft
) -> Iterator[tuple[str, _Side, _Side]]:
    one, other = _replicas(guest), _replicas(host)
    yield "numbers of replicas", one, other
    if one.value == other.value != 1:
        yield "ways of routing", _routing(guest), _routing(host)
    lists = bound_devices(context.said(guest)), bound_devices(context.said(host))
    if lists[0] is not None and lists[1] is not None:
        yield "devices", _ids(lists[0]), _ids(lists[1])
    for name, default in _OF_PROCESS.items():
        yield (
            f"`{name}`",
            _said(context, guest, name, default),
            _said(context, host, name, default),
        )


def _said(context: RuleContext, draft: StageDraft, name: str, default: object) -> _Side:
    given = context.given(draft, name)
    if given is None:
        return _Side(value=default)
    return _Side(value=given.value, origin=given.origin)


def _ids(listed: Sourced[str]) -> _Side:
    ids = tuple(text.strip() for text in listed.value.split(","))
    return _Side(value=ids, origin=listed.origin)


def _replicas(draft: StageDraft) -> _Side:
    item = _copies(draft)
    return _Side(value=draft.stack.num_replicas, origin=None if item is None else item.origin)


def _routing(draft: StageDraft) -> _Side:
    item = _copies(draft)
    assert item is not None, "it has several replicas"
    options = [f"{name} {said}" for name, said in plain_fields(item.options).items() if said]
    return _Side(value=(draft.stack.policy.value, *options), origin=item.origin)


def _copies(draft: StageDraft) -> StackedAxis | None:
    """The axis that makes its replicas."""
    role = WorldRole.MULTIPLIES_REPLICAS
    return next((item for item in draft.stack.axes if item.axis.role is role), None)


def _elsewhere(context: RuleContext, guest: StageDraft) -> Iterator[Diagnostic]:
    """Ways to start that take every stage for itself."""
    for option in ("worker_backend", "stage_id"):
        given = context.launch(option)
        if given is not None and given.value not in (None, "multi_process"):
            yield _apart(context, guest, f"{flag_name(option)} {given.value}", given.origin)
    if is_duplex(context):
        mode = context.wide("session_mode")
        yield _apart(context, guest, "session_mode: duplex", None if mode is None else mode.origin)


def _apart(context: RuleContext, guest: StageDraft, what: str, origin: Origin | None) -> Diagnostic:
    return Diagnostic(
        code="PL144",
        message=f"stages cannot share processes with `{what}`",
        origin=origin,
        notes=(
            Note(
                message=f"`{guest.stage.model_stage}` is to share some",
                origin=context.origin(guest, FIELD),
            ),
        ),
        help=f"leave `{FIELD}` out, or that",
    )


def _reaching_too_short(context: RuleContext, hosts: Mapping[int, int]) -> Iterator[Diagnostic]:
    """Connectors that were named for an edge and do not leave a process, between two processes."""
    specs = {spec.name: spec for spec in context.catalog.connectors.values()}
    names = {draft.stage_id: draft.stage.model_stage for draft in context.drafts}
    named = named_connectors(edges_of(context.pipeline), context.settings, Report())
    for edge in context.edges:
        ends = edge.source, edge.target
        if specs[edge.connector].reach is not Reach.PROCESS or share_process(hosts, *ends):
            continue
        source, target = (names[end] for end in ends)
        place = named[ends][0]
        yield Diagnostic(
            code="PL145",
            message=f"connector `{place.name}` does not leave a process, and"
            f" `{source}` and `{target}` share none",
            origin=place.origin,
            help=f"write `{FIELD}: {source}` for `{target}`, or name another connector",
        )
