"""LoRA: what its options need to have an effect.

Stages by tokens take adapters with requests once `enable_lora` is on; diffusion stages load theirs
from `lora_path`. That each field is one of its kind of stage is checked with the engine, and that
flags name the stage that they mean where there are several is checked with the flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from stagemesh.config.settings import Sourced
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.pipeline import ExecutionType

_SWITCH: Final = "enable_lora"
_NEEDING: Final = (
    "max_lora_rank",
    "max_loras",
    "max_cpu_loras",
    "lora_target_modules",
    "fully_sharded_loras",
)
"""Options of stages by tokens that the switch makes effective."""
_NEEDING_PATH: Final = ("lora_scale", "lora_backend")
"""Options of diffusion stages about the adapters that `lora_path` names."""
_DEFAULT_BACKEND: Final = "peft"
"""It also takes adapters that come with requests; others work on loaded ones alone."""


def lora(context: RuleContext) -> Ruling:
    """Refuse options without effect."""
    found: list[Diagnostic] = []
    for draft in context.drafts:
        if draft.stage.execution_type is ExecutionType.DIFFUSION:
            found += _diffusion(context, draft)
        else:
            found += _by_tokens(context, draft)
    return Ruling(diagnostics=tuple(found))


def _by_tokens(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    if draft.choice.value(_SWITCH):
        return
    said = (_beyond_default(context, draft, name) for name in _NEEDING)
    idle = [given for given in said if given is not None]
    if idle:
        off = context.given(draft, _SWITCH)
        notes = [Note(message="another of them is here", origin=given.origin) for given in idle[1:]]
        notes += [] if off is None else [Note(message="it is off here", origin=off.origin)]
        yield Diagnostic(
            code="PL090",
            message=f"LoRA options of `{draft.stage.model_stage}` need `{_SWITCH}: true`",
            origin=idle[0].origin,
            notes=tuple(notes),
            help=f"write `{_SWITCH}: true`, or clear the options with `null`",
        )


def _beyond_default(context: RuleContext, draft: StageDraft, name: str) -> Sourced[object] | None:
    """What was given, unless it is what the engine takes anyway."""
    spec, given = draft.choice.spec, context.given(draft, name)
    if given is None or spec is None:
        return given
    defaults = {item.name: item.default for item in fields(spec.options)}
    return None if name in defaults and defaults[name] == given.value else given


def _diffusion(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    stage, given = draft.stage.model_stage, draft.choice.value("lora_path")
    paths = given if isinstance(given, tuple) else () if given is None else (given,)
    backend = draft.choice.value("lora_backend") or _DEFAULT_BACKEND
    where = context.origin(draft, "lora_path")
    if given is not None and not (paths and all(paths)):
        yield Diagnostic(
            code="PL094",
            message=f"`lora_path` of `{stage}` names no adapter",
            origin=where,
            help="write the folder of an adapter, or leave it out",
        )
    elif len(paths) > 1 and backend == _DEFAULT_BACKEND:
        yield Diagnostic(
            code="PL093",
            message=f"`lora_backend: {backend}` of `{stage}` takes one `lora_path`,"
            f" got `{len(paths)}`",
            origin=where,
            help="name one adapter, or write `lora_backend: distill`",
        )
    elif not paths:
        for name in _NEEDING_PATH:
            idle = context.given(draft, name)
            if idle is not None and idle.value != _DEFAULT_BACKEND:
                yield Diagnostic(
                    code="PL092",
                    message=f"`{name}` of `{stage}` has no effect without `lora_path`",
                    origin=idle.origin,
                    help="name the adapter with `lora_path`, or leave it out",
                )
