"""Guidance parallelism: the branches of classifier-free guidance run on different ranks."""

from __future__ import annotations

from collections.abc import Iterator

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.patterns import Combine, DuplicateWithCondTag
from stagemesh.spec.pipeline import ExecutionType


def _check(view: StackView) -> Iterator[Finding]:
    size, guidance = view.size("cfg"), view.facts.guidance
    if size == 1:
        return
    if guidance is None:
        view.skip(f"`cfg` of `{view.stage}`: the checkpoint does not say whether it takes guidance")
    elif not guidance:
        yield Finding(
            code="AX035",
            message=f"`cfg` needs a model with guidance, and `{view.stage}` takes none",
            help="remove the `cfg` entry; `sp_ulysses` and `sp_ring` speed such a model up",
        )


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
    check=_check,
)
