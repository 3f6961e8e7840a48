"""How large and how many the results of a denoising stage are, and what that does to its facts.

Facts tell one result of the model's own size. What `default_sampling_params` and `max_num_seqs` say
instead is what the stage is asked for, as long as requests say nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from stagemesh.spec.engine import MemoryInput, Scaled
from stagemesh.spec.facts import Canvas, StageFacts

_SIDES: Final = ("num_frames", "height", "width")
"""Request parameters of a size, in the order of its numbers."""
_OUTPUTS: Final = "num_outputs_per_prompt"
_SEQUENCES: Final = "max_num_seqs"
_PROMPT: Final = "max_sequence_length"
SIZED_BY: Final = frozenset({*_SIDES, _OUTPUTS})
"""Request parameters on which every stage depends that a result passes."""
DECODERS: Final = ("vae",)
"""Beginnings of the names of components that turn latents into pixels."""


def is_decoder(given: MemoryInput) -> bool:
    """Whether all that is known of a stage turns latents into pixels."""
    names = given.facts.component_bytes
    return bool(names) and all(name.startswith(DECODERS) for name in names)


def requests(given: MemoryInput) -> int:
    """Requests that are denoised together."""
    return _number(given.stage_args.get(_SEQUENCES)) or 1


def results(given: MemoryInput) -> int:
    """Pictures or clips that are made together."""
    return requests(given) * (_number(given.params.get(_OUTPUTS)) or 1)


def scaled(given: MemoryInput) -> Scaled:
    """Return the facts of all results together, each of the size that is asked for."""
    facts, count = given.facts, results(given)
    if facts.canvas is not None:
        facts = _sized(facts, facts.canvas, _size(given, facts.canvas))
    return Scaled(
        facts=replace(
            facts,
            sequence_length=_times(facts.sequence_length, count),
            text_length=_times(facts.text_length, count),
            output_pixels=_times(facts.output_pixels, count),
        ),
        uncounted=tuple(_uncounted(given)),
    )


def _size(given: MemoryInput, canvas: Canvas) -> tuple[int, int, int]:
    """Frames, height and width of one result; a model of pictures makes no clips."""
    frames, height, width = (
        _number(given.params.get(name)) or own
        for name, own in zip(_SIDES, canvas.size, strict=True)
    )
    return (1 if canvas.size[0] == 1 else frames), height, width


def _sized(facts: StageFacts, canvas: Canvas, size: tuple[int, int, int]) -> StageFacts:
    """Return the facts of one result of that size; what is not known stays so."""
    tokens, length, pixels = canvas.tokens(size), facts.sequence_length, facts.output_pixels
    return replace(
        facts,
        sequence_length=None
        if length is None or tokens is None
        else tokens + (facts.text_length or 0),
        output_pixels=None if pixels is None else math.prod(size),
        output_frames=None if facts.output_frames is None else size[0],
    )


def _uncounted(given: MemoryInput) -> Iterator[str]:
    """Values that change what the stage holds, where facts do not tell how."""
    facts, canvas = given.facts, given.facts.canvas
    is_dark = facts.sequence_length is None and not is_decoder(given)
    if results(given) > 1 and is_dark:
        yield from (name for name in (_SEQUENCES, _OUTPUTS) if (_said(given, name) or 1) > 1)
    for name in _SIDES:
        of_clips = name == _SIDES[0] and canvas is not None and canvas.size[0] == 1
        if _said(given, name) and (canvas is None or is_dark or of_clips):
            yield name
    if _said(given, _PROMPT) and (facts.text_length or is_dark):
        yield _PROMPT


def _said(given: MemoryInput, name: str) -> int | None:
    return _number(given.params.get(name, given.stage_args.get(name)))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _times(amount: int | None, count: int) -> int | None:
    return None if amount is None else amount * count
