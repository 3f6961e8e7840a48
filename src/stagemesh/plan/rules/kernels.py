"""Which kernels every stage takes, and whether engines know them.

A name whose field the engine of a stage declares itself is checked by that declaration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from stagemesh.config.tree import Path, path_text, quoted
from stagemesh.plan.kernels import ATTENTION, BACKEND, DEFAULT, PER_ROLE
from stagemesh.plan.rules import kernel_names
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.setup import KernelsPlan
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic, Severity, did_you_mean

_BY_TOKENS: Final = "attention_backend"
_MOE: Final = "moe_backend"
_LINEAR: Final = "linear_backend"


def kernels(context: RuleContext) -> Ruling:
    """Check the names and write down the choice of every stage."""
    found: list[Diagnostic] = []
    for draft in context.drafts:
        found += _unknown(context, draft, _MOE, kernel_names.MOE)
        found += _unknown(context, draft, _LINEAR, kernel_names.LINEAR)
        found += _unheard_of(context, draft, _BY_TOKENS, kernel_names.ATTENTION)
        found += _malformed(context, draft)
    return Ruling(
        diagnostics=tuple(found),
        kernels={draft.stage_id: _chosen(draft) for draft in context.drafts},
    )


def _chosen(draft: StageDraft) -> KernelsPlan:
    attention, config = draft.choice.value(_BY_TOKENS), draft.choice.value(ATTENTION)
    moe, linear = draft.choice.value(_MOE), draft.choice.value(_LINEAR)
    if not isinstance(config, Mapping):
        config = {} if attention is None else {DEFAULT: attention}
    return KernelsPlan(
        attention=config,
        moe=None if moe is None else str(moe),
        linear=None if linear is None else str(linear),
    )


def _unknown(
    context: RuleContext, draft: StageDraft, field: str, known: Collection[str]
) -> Iterator[Diagnostic]:
    """A name that is none of a closed set."""
    name = draft.choice.stage_args.get(field)
    if name is not None and name not in known:
        yield Diagnostic(
            code="PL095",
            message=f"`{field}` of `{draft.stage.model_stage}` does not take {quoted(name)}",
            origin=context.origin(draft, field),
            help=did_you_mean(str(name), known),
        )


def _unheard_of(
    context: RuleContext, draft: StageDraft, field: str, known: Collection[str]
) -> Iterator[Diagnostic]:
    """A name that a plug-in may know."""
    given = draft.choice.stage_args.get(field)
    said = context.given(draft, field)
    for path, name in _names(given):
        if name not in known:
            yield Diagnostic(
                code="PL096",
                severity=Severity.WARNING,
                message=f"no engine is known to have the kernels {quoted(name)} that"
                f" `{draft.stage.model_stage}` asks for",
                origin=None if said is None else said.at(*path),
                help=did_you_mean(str(name), known),
            )


def _names(choice: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every name in a choice, plain or structured, with its path."""
    if isinstance(choice, Mapping):
        roles = choice.get(PER_ROLE)
        yield from _names(choice.get(DEFAULT), (*path, DEFAULT))
        yield from _names(choice.get(BACKEND), (*path, BACKEND))
        for role, each in roles.items() if isinstance(roles, Mapping) else ():
            yield from _names(each, (*path, PER_ROLE, role))
    elif choice is not None:
        yield path, choice


def _malformed(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    """The structured choice of a diffusion stage: its form, then its names."""
    config, given = draft.choice.stage_args.get(ATTENTION), context.given(draft, ATTENTION)
    if given is None or not isinstance(config, Mapping):
        return
    stage = draft.stage.model_stage
    wrong = list(_wrong_form(config))
    for path, help_text in wrong:
        yield Diagnostic(
            code="PL089",
            message=f"{quoted(path_text((ATTENTION, *path)), 60)} of `{stage}` chooses no kernels",
            origin=given.at(*path),
            help=help_text,
        )
    if not wrong:
        yield from _unheard_of(context, draft, ATTENTION, kernel_names.DIFFUSION_ATTENTION)


def _wrong_form(config: Mapping[str, object]) -> Iterator[tuple[Path, str]]:
    """Return the paths at fault, each with what may stand there."""
    for key, value in config.items():
        path: Path = (key,)
        if key == PER_ROLE:
            roles = value if isinstance(value, Mapping) else None
            if roles is None:
                yield path, "write a mapping from roles of layers to kernels"
            for role, choice in (roles or {}).items():
                if not _is_choice(choice):
                    yield (*path, role), _CHOICE
        elif key != DEFAULT:
            yield path, did_you_mean(key, (DEFAULT, PER_ROLE))
        elif not _is_choice(value):
            yield path, _CHOICE


_CHOICE: Final = (
    f"write a name such as `TORCH_SDPA`, or `{{{BACKEND}: NAME, ...}}` with its options"
)


def _is_choice(value: object) -> bool:
    name = value.get(BACKEND) if isinstance(value, Mapping) else value
    return value is None or isinstance(name, str)
