"""The `ar` engine: continuous batching over decoder models of `transformers`, as published.

This module is the declaration. `engine` steps, `request` follows one request, `scheduler` decides
what a step computes, `blocks` counts the cache that `cache` holds, `attention` reads it, `network`
runs the model, `sampling` picks tokens, `tokens` turns text into tokens and back. `memory` and
`forward` tell the planner what a rank holds and what a step costs.
"""

from __future__ import annotations

from typing import Final

from stagemesh.engines.ar.forward import decode_step
from stagemesh.engines.ar.memory import check, estimate
from stagemesh.engines.ar.options import ArOptions, ArParams
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.pipeline import ExecutionType

ENGINE: Final = EngineSpec(
    name="ar",
    summary="token by token over transformers decoder models, with continuous batching",
    runs=frozenset({ExecutionType.LLM_AR}),
    default_for=frozenset({ExecutionType.LLM_AR}),
    options=ArOptions,
    params=ArParams,
    memory=estimate,
    forward=decode_step,
    check=check,
    needs_weights=True,
    factory="stagemesh.engines.ar.engine:make_engine",
)
