"""VAE parallelism: the picture is decoded in tiles by ranks that other axes brought."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, cast

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.cost import Cost, CostView, Part, Pieces
from stagemesh.spec.diagnostic import counted
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import ShardSpatial, StitchSpatial
from stagemesh.spec.pipeline import ExecutionType


@frozen
class Options:
    """Further keys of a `vae_pp` entry."""

    mode: Literal["tile", "spatial_shard_height", "spatial_shard_width"] = "tile"
    """`tile` equals the tiled decode of one device; the others cut height or width exactly."""


def _needs(size: int, options: object) -> Mapping[str, object]:
    """Tiles for several ranks are there only when the picture is decoded in tiles."""
    is_tiled = size > 1 and cast("Options", options).mode == "tile"
    return {"vae_use_tiling": True} if is_tiled else {}


def _check(view: StackView) -> Iterator[Finding]:
    size = view.size("vae_pp")
    if size > view.world:
        yield Finding(
            code="AX036",
            message=f"`vae_pp` size `{size}` exceeds the {counted(view.world, 'rank')} of"
            f" `{view.stage}`",
            help=f"choose a size up to `{view.world}`, or add ranks with another axis",
        )


_COLOURS: Final = 3


def _is_tiled(options: object) -> bool:
    return cast("Options", options).mode == "tile"


def _cuts(size: int, options: object) -> Pieces:
    return {Part.TILES if _is_tiled(options) else Part.BANDS: size}


def _cost(view: CostView) -> Cost | None:
    """Gather the decoded tiles; what bands exchange depends on every convolution of the VAE."""
    size, pixels = view.size("vae_pp"), view.facts.output_pixels
    if pixels is None or not _is_tiled(view.options):
        return None
    picture = _COLOURS * pixels * view.forward.element_bytes
    return Cost(sent_bytes=-(-picture // size) * (size - 1), collectives=1, per_request=True)


AXIS = Axis(
    name="vae_pp",
    summary="VAE parallelism: the picture decoded in tiles by several ranks",
    fits=frozenset({ExecutionType.DIFFUSION}),
    role=WorldRole.REUSES_RANKS,
    routing=ShardSpatial(),
    aggregation=StitchSpatial(),
    owner=Owner.ENGINE,
    deploy_fields=(
        DeployField(name="vae_patch_parallel_size"),
        DeployField(name="vae_parallel_mode", member="mode"),
    ),
    needs_fields=_needs,
    options=Options,
    needs=(
        "at most as many ranks as the stage has",
        "with `mode: tile`, it sets `vae_use_tiling`",
    ),
    check=_check,
    cuts=_cuts,
    cost=_cost,
)
