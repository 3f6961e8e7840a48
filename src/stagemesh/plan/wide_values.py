"""What is said of the pipeline as a whole and what holds for it, by path.

The paths are those of deploy files (`session_mode`, `duplex_session.max_sessions`), but that launch
options stand below `launch` and settings of edges below `edges.0-1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stagemesh.config.edges import EDGES
from stagemesh.config.plain import plain, plain_fields
from stagemesh.config.settings import Settings
from stagemesh.plan.edge_values import edge_path, edge_values, held_by_edge
from stagemesh.plan.provenance import cleared_of, values_of
from stagemesh.plan.restate import duplex_fields
from stagemesh.plan.values import EdgePlan, Plan, ValuePlan
from stagemesh.spec.pipeline import PipelineConfig

LAUNCH: Final = "launch"
"""First part of the paths of launch options."""
_TRANSFER: Final = "weight_transfer_config"


def given_values(
    pipeline: PipelineConfig, settings: Settings, edges: Iterable[EdgePlan]
) -> Mapping[str, ValuePlan]:
    """Say of everything that was given for the whole pipeline where it came from."""
    fields = {name: said for name, said in settings.fields.items() if name != EDGES}
    launch = {f"{LAUNCH}.{name}": said for name, said in settings.launch.items()}
    return {
        **cleared_of({name: taken for name, taken in settings.cleared.items() if name != EDGES}),
        **values_of(fields),
        **values_of(launch),
        **edge_values(pipeline, settings, edges),
    }


def held_by_plan(plan: Plan) -> Mapping[str, object]:
    """Return what holds for the whole pipeline by path, whoever gave it."""
    duplex, transfer = plan.session.duplex, plan.weight_transfer
    groups: dict[str, Mapping[str, object]] = {
        "duplex_session": {} if duplex is None else duplex_fields(duplex),
        _TRANSFER: {} if transfer is None else {**transfer.options, "backend": transfer.backend},
        LAUNCH: plain_fields(plan.launch),
        **{edge_path(edge): held_by_edge(edge) for edge in plan.edges},
    }
    return {
        "pipeline": plan.pipeline,
        "async_chunk": plan.async_chunk,
        "session_mode": plan.session.mode,
        "active_stream_window": plan.active_stream_window,
        "cuda_mps": plan.cuda_mps,
        **({_TRANSFER: None} if transfer is None else {}),
        **{
            f"{prefix}.{name}": plain(value)
            for prefix, values in groups.items()
            for name, value in values.items()
        },
    }
