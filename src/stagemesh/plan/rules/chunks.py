"""Handing over from stage to stage: in chunks or whole, and how many streams at a time."""

from __future__ import annotations

from typing import Final, cast

from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.spec.diagnostic import Diagnostic, Note

_TRANSFER: Final = "kv_transfer_config"
_CHUNKS: Final = "async_chunk"
_WINDOW: Final = "active_stream_window"


def chunks(context: RuleContext) -> Ruling:
    """Check what cannot be had together, and write down the window."""
    given = context.wide(_WINDOW)
    return Ruling(
        diagnostics=_whole_caches(context) if context.async_chunk else (),
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
