"""Values that a plan decides and no file gives: what they are, and what they follow from.

A path is that of the saved plan, such as `thinker.world_size`, `edges.0-1.chunked`, `checkpoint`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from stagemesh.config.docs import field_docs
from stagemesh.config.edges import EDGES
from stagemesh.config.plain import plain
from stagemesh.plan.explain_value import ValueStory, Word
from stagemesh.plan.make import Made
from stagemesh.plan.subject import Record, Subject
from stagemesh.plan.values import EdgePlan, Plan, StagePlan

_PIPELINE: Final = "the model's pipeline"
_RULES: Final = "the fields of the stage and the rules over all of them"

OF_STAGES: Final[Mapping[str, str]] = {
    "stage_id": _PIPELINE,
    "name": _PIPELINE,
    "execution_type": _PIPELINE,
    "input_sources": _PIPELINE,
    "final_output_type": _PIPELINE,
    "owns_tokenizer": _PIPELINE,
    "model_subdir": _PIPELINE,
    "loader": _PIPELINE,
    "world_size": "the axes that bring ranks",
    "replicas": "the axes, and `devices` where somebody gives it",
    "policy": "the routing of the axis that copies the stage",
    "bindings": "the axes, each with its hooks and kernels",
    "engine_args": "the fields of the stage that its engine takes",
    "stage_args": "the fields of the stage on which its engine does not act yet",
    "model_args": "`additional_config`",
    "sampling": "`default_sampling_params` and the model's pipeline",
    "memory": "facts of the checkpoint and the axes",
    "setup": _RULES,
}
"""What the values of a stage follow from that no field of it gives."""

OF_EDGES: Final[Mapping[str, str]] = {
    "source": _PIPELINE,
    "target": _PIPELINE,
    "payload_type": "the engine of the stage that produces",
    "bridge": _PIPELINE,
    "chunked": "`async_chunk` of the pipeline and of both stages",
    "options": "the connector of the edge",
    "model_options": "the connector of the edge",
}
"""The same for edges."""

OF_PLANS: Final[Mapping[str, str]] = {
    "version": "this release",
    "checkpoint": "MODEL",
    "devices": "`--devices`, or else this machine",
    "not_runnable": "what no engine and no part of the runtime carries out yet",
    "skipped_checks": "facts that the checkpoint does not give",
    "session": "`session_mode` and `duplex_session`",
    "weight_transfer": "`weight_transfer_config`",
}
"""The same for the pipeline as a whole."""


def explain_planned(subject: Subject, record: Record, made: Made) -> ValueStory | None:
    """Tell what a value of a plan follows from; `None` when the plan does not decide it."""
    if made.plan is None:
        return None
    root: StagePlan | EdgePlan | Plan = made.plan
    first, *rest = subject.path.split(".")
    sources = OF_PLANS
    if subject.stage is not None:
        root, sources = record.stages[subject.stage], OF_STAGES
    elif first == EDGES and rest and rest[0] in record.edges:
        root, sources = record.edges[rest[0]], OF_EDGES
        first, rest = rest[1] if len(rest) > 1 else "", rest[2:]
    if first not in sources:
        return None
    found = _walked(root, [first, *rest])
    if found is None:
        return None
    value, doc = found
    word = Word(layer="plan", place=f"follows from {sources[first]}", value=value, verdict="wins")
    return ValueStory(
        path=subject.shown,
        topic="",
        value=value,
        type="",
        doc=doc,
        words=(word,),
        needs=(),
        goes_to="whatever runs the plan",
    )


def _walked(value: object, parts: Sequence[str]) -> tuple[object, str] | None:
    """Return the plain value at a path, with what the last field on the way is about."""
    doc = ""
    for part in parts:
        if dataclasses.is_dataclass(value) and part in field_docs(type(value)):
            doc = field_docs(type(value))[part]
            value = getattr(value, part)
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, tuple) and part in map(str, range(len(value))):
            value = value[int(part)]
        else:
            return None
    return plain(value), " ".join(doc.split())
