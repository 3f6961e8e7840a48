"""What an engine is given to load, with plain answers to everything that a test does not ask."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stagemesh.spec.engine import EngineContext
from stagemesh.spec.pipeline import NoOptions

_PLAIN: Final = EngineContext(
    stage="stage",
    checkpoint=Path(),
    model_subdir=".",
    loader=None,
    device="cpu",
    rank=0,
    world_size=1,
    async_chunk=True,
    owns_tokenizer=False,
    args=NoOptions(),
    model_args=NoOptions(),
    model_params=NoOptions,
)


def engine_context(args: object, **changes: Any) -> EngineContext:  # noqa: ANN401  fields of any type
    """Return the context of one CPU rank whose engine has `args`; `changes` are further fields."""
    return replace(_PLAIN, args=args, **changes)
