"""CUDA MPS: which stages share their device through it, and which daemon they use.

It is an aid and no promise: a stage that cannot take part runs without, and the plan says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from stagemesh.config.tree import quoted
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.rules.executor import executor_of
from stagemesh.plan.setup import MpsPlan
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Origin
from stagemesh.spec.pipeline import ExecutionType

_FIELD: Final = "cuda_mps"
_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"


def mps(context: RuleContext) -> Ruling:
    """Decide for every stage; nothing where MPS was not asked for."""
    given = context.wide(_FIELD)
    if given is None or given.value is not True:
        return Ruling()
    reasons = {draft.stage_id: _off_because(context, draft) for draft in context.drafts}
    sharing = [draft for draft in context.drafts if reasons[draft.stage_id] is None]
    daemons = _Daemons(context)
    found = [wrong for draft in sharing for wrong in daemons.join(draft)]
    if not sharing:
        found.append(
            Diagnostic(
                code="PL108",
                severity=Severity.WARNING,
                message=f"`{_FIELD}` has no effect on any stage: {reasons[0]}",
                origin=given.origin,
                help=f"write `{_FIELD}: false`, or leave it out",
            )
        )
    return Ruling(
        diagnostics=tuple(found),
        mps={
            draft.stage_id: MpsPlan(
                off_because=reasons[draft.stage_id],
                pipe_directories=daemons.of(draft) if draft in sharing else (),
            )
            for draft in context.drafts
        },
    )


def _off_because(context: RuleContext, draft: StageDraft) -> str | None:
    """Say why a stage cannot take part, or `None`."""
    if context.devices.platform != "cuda":
        return f"the devices are `{context.devices.platform}`"
    if draft.stage.execution_type is ExecutionType.DIFFUSION:
        return "it is a diffusion stage"
    if executor_of(draft) not in ("uni", "mp") or _runs_elsewhere(context, draft):
        return "its ranks are started elsewhere"
    if draft.stack.world != 1:
        return f"a replica has `{draft.stack.world}` ranks, and MPS shares one device"
    names = dict(enumerate(context.devices.ids))
    unnumbered = [names[each] for each in _devices(context, draft) if not _is_number(names, each)]
    return f"the device {quoted(unnumbered[0])} has no number" if unnumbered else None


def _runs_elsewhere(context: RuleContext, draft: StageDraft) -> bool:
    """Whether Ray, or another start of the same model, runs a stage."""
    backend, own = context.launch("worker_backend"), context.launch("stage_id")
    is_by_ray = backend is not None and backend.value == "ray"
    return is_by_ray or (own is not None and own.value not in (None, draft.stage_id))


def _is_number(names: Mapping[int, str], device: int) -> bool:
    return device not in names or names[device].isdigit()


def _devices(context: RuleContext, draft: StageDraft) -> tuple[int, ...]:
    """The device of each replica, of a stage whose replicas have one rank."""
    return tuple(ids[0] for ids in context.placement.replicas.get(draft.stage_id, ()))


class _Daemons:
    """The daemon of each device: that of the first stage on it."""

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._first: dict[int, tuple[StageDraft, str | None]] = {}

    def join(self, draft: StageDraft) -> Iterator[Diagnostic]:
        """Let a stage use its devices; tell where it asks for another daemon than the first."""
        said, origin = self._said(draft)
        for device in _devices(self._context, draft):
            first, daemon = self._first.setdefault(device, (draft, said))
            if said is not None and said != daemon:
                yield Diagnostic(
                    code="PL107",
                    message=f"`{draft.stage.model_stage}` asks for another MPS daemon than"
                    f" `{first.stage.model_stage}` on device `{device}`",
                    origin=origin,
                    notes=(Note(message=_shown(first, daemon), origin=self._said(first)[1]),),
                    help=f"set `{_PIPE}` in `env` of both to the same, or of the first alone",
                )
                return

    def of(self, draft: StageDraft) -> tuple[str | None, ...]:
        """Return the daemon of every replica."""
        return tuple(self._first[device][1] for device in _devices(self._context, draft))

    def _said(self, draft: StageDraft) -> tuple[str | None, Origin | None]:
        given = self._context.given(draft, "env")
        variables = {} if given is None else cast("Mapping[str, str]", given.value)
        if given is None or _PIPE not in variables:
            return None, None
        return variables[_PIPE], given.at(_PIPE)


def _shown(first: StageDraft, daemon: str | None) -> str:
    whose = f"`{first.stage.model_stage}` takes"
    if daemon is None:
        return f"{whose} the daemon of the parent environment, or a private one"
    return f"{whose} {quoted(daemon) if daemon else 'a private daemon'}"
