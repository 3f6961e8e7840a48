"""Expert parallelism: experts of MoE layers are spread over ranks that other axes brought."""

from __future__ import annotations

from collections.abc import Iterator

from stagemesh.spec.axis import ENABLED, Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.cost import Cost, CostView, Part, cuts
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.patterns import Broadcast, Union
from stagemesh.spec.pipeline import ExecutionType


def _is_possible(facts: StageFacts) -> bool:
    return facts.num_experts != 0


def _check(view: StackView) -> Iterator[Finding]:
    size, experts = view.size("ep"), view.facts.num_experts
    if size == 1:
        return
    if experts is None:
        view.skip(f"`ep` of `{view.stage}`: the checkpoint does not give the number of experts")
    elif not _is_possible(view.facts):
        yield Finding(
            code="AX032",
            message=f"`ep` needs a mixture of experts, and `{view.stage}` has none",
            help="leave `ep` out for this stage",
        )
    elif experts % size:
        yield Finding(
            code="AX033",
            message=f"`ep` size `{size}` does not divide the `{experts}` experts of `{view.stage}`",
            help=f"choose sizes of the other axes whose product divides `{experts}`",
        )


def _cost(view: CostView) -> Cost | None:
    """Bring the tokens of every group to all experts, and sum what those make of them.

    Ranks that cut a layer have the same tokens anyway: only the other ones exchange.
    """
    facts = view.facts
    if facts.hidden_size is None or facts.num_layers is None:
        return None
    groups = view.size("ep") // view.cut(Part.WIDTH)
    layers = -(-facts.num_layers // view.cut(Part.LAYERS))
    tokens = max(view.lengths) * facts.hidden_size * view.forward.element_bytes
    return Cost(
        sent_bytes=2 * (groups - 1) * tokens * layers,
        collectives=2 * layers if groups > 1 else 0,
    )


AXIS = Axis(
    name="ep",
    summary="expert parallelism: experts of MoE layers spread over the ranks",
    fits=frozenset(ExecutionType),
    role=WorldRole.REUSES_RANKS,
    routing=Broadcast(),
    aggregation=Union(),
    owner=Owner.ENGINE,
    deploy_fields=(DeployField(name="enable_expert_parallel", member=ENABLED),),
    size_from={
        ExecutionType.LLM_AR: ("tp", "dp"),
        ExecutionType.LLM_GENERATION: ("tp", "dp"),
        ExecutionType.DIFFUSION: ("tp", "sp_ulysses", "sp_ring", "cfg", "dp"),
    },
    overlay=("dp", "cfg", "sp_ring", "sp_ulysses", "tp"),
    is_possible=_is_possible,
    needs=("a mixture of experts, whose number divides by its size",),
    check=_check,
    cuts=cuts(Part.EXPERTS),
    cost=_cost,
)
