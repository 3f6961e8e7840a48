"""Handing over from stage to stage: in chunks or whole, and how many streams at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Origin

_TRANSFER: Final = "kv_transfer_config"
_CHUNKS: Final = "async_chunk"
_WINDOW: Final = "active_stream_window"
_TOGETHER: Final = "window_size"
_UNIT: Final = "unit"
_OF_CHUNKS: Final = "chunks"


def chunks(context: RuleContext) -> Ruling:
    """Check what cannot be had together, and write down the window."""
    given = context.wide(_WINDOW)
    whole = _whole_caches(context) if context.async_chunk else ()
    return Ruling(
        diagnostics=(*whole, *_idle(context)),
        active_stream_window=0 if given is None else cast("int", given.value),
    )


def _whole_caches(context: RuleContext) -> tuple[Diagnostic, ...]:
    """A cache that is handed over whole needs payloads that are, too."""
    chunked = context.wide(_CHUNKS)
    notes = [] if chunked is None else [Note(message="chunks are on here", origin=chunked.origin)]
    return tuple(
        Diagnostic(
            code="PL123",
            message=f"`{_TRANSFER}` of `{draft.stage.model_stage}` needs `{_CHUNKS}: false`",
            origin=given.origin,
            notes=tuple(notes),
            help="the cache is handed over as a whole; say it in the file, or `--no-async-chunk`",
        )
        for draft, given in context.each(_TRANSFER)
    )


def _idle(context: RuleContext) -> Iterator[Diagnostic]:
    """Say which values are about chunks where there are none.

    Nothing is told where a higher layer has switched them off: their options are meant with them.
    """
    chunked = {(edge.source, edge.target) for edge in context.edges if edge.chunked}
    given = context.wide(_WINDOW)
    if given is not None and given.value and not chunked:
        yield from _told(
            context, f"`{_WINDOW}` bounds nothing: no stage hands over chunks", given.origin
        )
    sources = {source for source, _target in chunked}
    for draft in context.drafts:
        for item in draft.stack.axes:
            unit = item.settings.options.get(_UNIT)
            if unit is not None and unit.value == _OF_CHUNKS and draft.stage_id not in sources:
                message = f"`{_UNIT}: {_OF_CHUNKS}` of `{draft.stage.model_stage}` bounds nothing:"
                yield from _told(context, f"{message} it hands over no chunks", unit.origin)
    for edge in context.settings.edges:
        ends = (edge.source, edge.target)
        if (edge.window_size or 0) > 0 and ends not in chunked:
            message = f"`{_TOGETHER}` does nothing on `{ends[0]} -> {ends[1]}`, which has no chunks"
            yield from _told(context, message, edge.place(_TOGETHER))


def _told(context: RuleContext, message: str, origin: Origin) -> Iterator[Diagnostic]:
    switch = context.wide(_CHUNKS)
    if switch is None or switch.value or not switch.origin.layer.takes_back(origin.layer):
        notes: tuple[Note, ...] = ()
        if switch is not None and not switch.value:
            notes = (Note(message="chunks are off here", origin=switch.origin),)
        yield Diagnostic(
            code="PL124",
            severity=Severity.WARNING,
            message=message,
            origin=origin,
            notes=notes,
            help="leave it out; outputs are handed over whole",
        )
