"""Request parameters against what the stage can do: what no request could ever have is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stagemesh.plan.declared import SAMPLING
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic, Severity
from stagemesh.spec.origin import Origin

_MOST: Final = "max_tokens"
_LONGEST: Final = "max_model_len"
_TOGETHER: Final = "max_num_batched_tokens"
_CHUNKED: Final = "enable_chunked_prefill"
_FRAMES: Final = "num_frames"
_SIDES: Final = ("height", "width")


def requests(context: RuleContext) -> Ruling:
    """Check the length of answers and prompts, and the size of pictures and clips."""
    found = (
        each
        for draft in context.drafts
        for each in (*_answers(context, draft), *_prompts(context, draft), *_sizes(context, draft))
    )
    return Ruling(diagnostics=tuple(found))


def _answers(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    most, longest, spec = draft.sampling.get(_MOST), _longest(draft), draft.choice.spec
    is_sound = spec is not None and isinstance(draft.choice.args, spec.options)
    if is_sound and isinstance(most, int) and longest is not None and most > longest:
        yield Diagnostic(
            code="PL151",
            severity=Severity.WARNING,
            message=f"`{_MOST}` of `{draft.stage.model_stage}` is `{most}`, and a sequence has at"
            f" most `{longest}` tokens, its prompt among them",
            origin=_place(context, draft, _MOST),
            help=f"write less, or raise `{_LONGEST}`: answers end where the sequence is full",
        )


def _prompts(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    given, longest = context.given(draft, _TOGETHER), _longest(draft)
    is_whole = draft.choice.value(_CHUNKED) is False
    if is_whole and given is not None and longest is not None:
        together = given.value
        if isinstance(together, int) and together < longest:
            yield Diagnostic(
                code="PL152",
                message=f"`{_TOGETHER}` of `{draft.stage.model_stage}` is `{together}`, and a"
                f" prompt of up to `{longest}` tokens has to go in at once",
                origin=given.origin,
                help=f"write at least `{longest}`, a smaller `{_LONGEST}`, or `{_CHUNKED}: true`",
            )


def _longest(draft: StageDraft) -> int | None:
    given = draft.choice.value(_LONGEST)
    if isinstance(given, int) and given > 0:
        return given
    return draft.stack.facts.max_model_len


def _sizes(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    canvas, stage = draft.stack.facts.canvas, draft.stage.model_stage
    if canvas is None:
        return
    each, *cells = canvas.cell
    for name, cell in zip(_SIDES, cells, strict=True):
        side = draft.sampling.get(name)
        if isinstance(side, int) and side < cell:
            yield Diagnostic(
                code="PL153",
                message=f"`{name}` of `{stage}` is `{side}`, and the smallest picture has `{cell}`",
                origin=_place(context, draft, name),
                help=f"write a multiple of `{cell}`",
            )
    frames = draft.sampling.get(_FRAMES)
    if canvas.size[0] > 1 and isinstance(frames, int) and (frames - 1) % each:
        fewer = frames - (frames - 1) % each
        yield Diagnostic(
            code="PL153",
            message=f"`{_FRAMES}` of `{stage}` is `{frames}`, and clips have one frame more"
            f" than a multiple of `{each}`",
            origin=_place(context, draft, _FRAMES),
            help=f"write `{fewer}` or `{fewer + each}`",
        )


def _place(context: RuleContext, draft: StageDraft, name: str) -> Origin | None:
    given = context.given(draft, SAMPLING)
    return None if given is None else given.at(name)
