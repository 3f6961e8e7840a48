"""What two starts must have in common to work together, as one short text, and what is their own.

The model, the topology, the edges with their connectors, and whether chunks are handed over decide
what travels between stages, so they are in the fingerprint. How a stage runs is its start's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from stagemesh.config.plain import plain_fields
from stagemesh.plan.values import EdgePlan, Plan, StagePlan
from stagemesh.spec.registry import CONNECTORS


def fingerprint(plan: Plan) -> str:
    """Return the text; it is the same on all hosts for equal values."""
    text = json.dumps(common_values(plan), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def common_values(plan: Plan) -> dict[str, object]:
    """Return the values that the fingerprint is made of."""
    return {
        "pipeline": plan.pipeline,
        "model": plan.checkpoint.config_hash,
        "async_chunk": plan.async_chunk,
        "stages": [_topology(stage) for stage in plan.stages],
        "edges": [_edge(edge) for edge in plan.edges],
    }


def local_values(stage: StagePlan) -> dict[str, object]:
    """Return what a start decides for its stage, for those who look at the whole from elsewhere."""
    return {
        "engine": stage.engine,
        "world_size": stage.world_size,
        "axes": {axis.label: axis.size for axis in stage.axes},
        "engine_args": dict(stage.engine_args),
    }


def _topology(stage: StagePlan) -> dict[str, object]:
    return {
        "id": stage.stage_id,
        "name": stage.name,
        "execution_type": stage.execution_type,
        "input_sources": list(stage.input_sources),
        "final_output_type": stage.final_output_type,
        "owns_tokenizer": stage.owns_tokenizer,
        "model_subdir": stage.model_subdir,
        "async_chunk": stage.async_chunk,
    }


def _edge(edge: EdgePlan) -> Mapping[str, object]:
    plain = plain_fields(edge)
    (connector,) = CONNECTORS.load(edge.connector)
    plain["options"] = {
        name: value for name, value in edge.options.items() if name not in connector.local_options
    }
    return plain
