"""Pipeline parallelism: consecutive layers of one network lie on different ranks."""

from __future__ import annotations

from collections.abc import Iterator

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.cost import Cost, CostView, Part, cuts
from stagemesh.spec.diagnostic import counted
from stagemesh.spec.patterns import PipelineMicrobatch, StitchPipeline
from stagemesh.spec.pipeline import ExecutionType


def _check(view: StackView) -> Iterator[Finding]:
    size, layers = view.size("pp"), view.facts.num_layers
    if size == 1:
        return
    if layers is None:
        view.skip(f"`pp` of `{view.stage}`: the checkpoint does not give the number of layers")
    elif layers < size:
        yield Finding(
            code="AX031",
            message=f"`pp` size `{size}` exceeds the {counted(layers, 'layer')} of `{view.stage}`",
            help=f"choose a size up to `{layers}`",
        )


def _cost(view: CostView) -> Cost | None:
    """Hand the hidden states of the rank's own tokens to the rank with the next layers."""
    hidden = view.facts.hidden_size
    if hidden is None:
        return None
    return Cost(
        sent_bytes=(max(view.lengths) + view.whole_text) * hidden * view.forward.element_bytes,
        collectives=1,
    )


AXIS = Axis(
    name="pp",
    summary="pipeline parallelism: consecutive layers on different ranks",
    fits=frozenset({ExecutionType.LLM_AR, ExecutionType.DIFFUSION}),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=PipelineMicrobatch(),
    aggregation=StitchPipeline(),
    owner=Owner.ENGINE,
    mesh_position=2,
    deploy_fields=(DeployField(name="pipeline_parallel_size", pipeline_wide=True),),
    needs=("at least as many layers as its size",),
    check=_check,
    cuts=cuts(Part.LAYERS),
    cost=_cost,
)
