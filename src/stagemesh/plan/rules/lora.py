"""LoRA: the adapters that diffusion stages load from `lora_path`.

Stages by tokens take theirs with requests once `enable_lora` is on. That each field is one of its
kind of stage is checked with the engine, that flags name the stage that they mean with the flags,
and what an option needs to have an effect where it is declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.pipeline import ExecutionType

_DEFAULT_BACKEND: Final = "peft"
"""It also takes adapters that come with requests; others work on loaded ones alone."""


def lora(context: RuleContext) -> Ruling:
    """Refuse a list without paths, and more of them than can be applied."""
    found = [
        each
        for draft in context.drafts
        if draft.stage.execution_type is ExecutionType.DIFFUSION
        for each in _loaded(context, draft)
    ]
    return Ruling(diagnostics=tuple(found))


def _loaded(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    stage, given = draft.stage.model_stage, draft.choice.value("lora_path")
    paths = given if isinstance(given, tuple) else () if given is None else (given,)
    backend = draft.choice.value("lora_backend") or _DEFAULT_BACKEND
    where = context.origin(draft, "lora_path")
    if given is not None and not paths:
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
