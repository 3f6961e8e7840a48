"""Guidance parallelism: the branches of classifier-free guidance run on different ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, cast

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.bounds import Range
from stagemesh.spec.cost import Cost, CostView, Part, cuts
from stagemesh.spec.diagnostic import counted
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import Combine, DuplicateWithCondTag
from stagemesh.spec.pipeline import ExecutionType

_LEAST: Final = 2
"""Branches of plain guidance: with the prompt and without it."""


@frozen
class Options:
    """Further keys of a `cfg` entry."""

    branches: Annotated[int, Range(minimum=_LEAST)] | None = None
    """Guidance branches of one step; `M` ranks take them in turns, branch `i` on rank `i mod M`."""


def _is_possible(facts: StageFacts) -> bool:
    return facts.guidance is not False


def _check(view: StackView) -> Iterator[Finding]:
    size, guidance = view.size("cfg"), view.facts.guidance
    branches = cast("Options", view.options).branches
    if size == 1:
        return
    if guidance is None:
        view.skip(f"`cfg` of `{view.stage}`: the checkpoint does not say whether it takes guidance")
    elif not _is_possible(view.facts):
        yield Finding(
            code="AX035",
            message=f"`cfg` needs a model with guidance, and `{view.stage}` takes none",
            help="leave `cfg` out for this stage; `sp_ulysses` and `sp_ring` speed such a model up",
        )
        return
    if branches is None and size > _LEAST:
        view.skip(f"`cfg` of `{view.stage}`: nothing says how many branches the model has")
    elif branches is not None and size > branches:
        yield Finding(
            code="AX043",
            message=f"`cfg` size `{size}` exceeds the"
            f" {counted(branches, 'branch', 'branches')} of `{view.stage}`",
            help=f"choose a size up to `{branches}`: a further rank would have nothing to do",
        )


def _cost(view: CostView) -> Cost | None:
    """Gather what the branches predicted: every rank combines them itself.

    A rank with several branches sends as many predictions in one go.
    """
    output, size = view.facts.output_size, view.size("cfg")
    if output is None:
        return None
    branches = cast("Options", view.options).branches or _LEAST
    predicted = view.picture * output * view.forward.element_bytes
    return Cost(sent_bytes=(size - 1) * -(-branches // size) * predicted, collectives=1)


AXIS = Axis(
    name="cfg",
    summary="guidance parallelism: branches of classifier-free guidance on different ranks",
    fits=frozenset({ExecutionType.DIFFUSION}),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=DuplicateWithCondTag(),
    aggregation=Combine(),
    owner=Owner.ENGINE,
    mesh_position=1,
    deploy_fields=(DeployField(name="cfg_parallel_size"),),
    options=Options,
    is_possible=_is_possible,
    needs=("a model that takes guidance", "at most as many ranks as `branches`"),
    check=_check,
    cuts=cuts(Part.BRANCHES),
    cost=_cost,
)
