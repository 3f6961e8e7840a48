"""Binds the ranks of an axis to a VAE, which stays the class that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import nn

from stagemesh.errors import DiagnosticError
from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.vae.bands import cut_bands
from stagemesh.parallel.vae.check import vae_bind_findings
from stagemesh.parallel.vae.tiles import share_tiles
from stagemesh.spec.cost import Part
from stagemesh.spec.plan_findings import vae_findings
from stagemesh.spec.vae_plan import VaePlan

_DIMS: Final[Mapping[str, int]] = {"spatial_shard_height": -2, "spatial_shard_width": -1}


def bind_vae(plan: VaePlan, vae: nn.Module, over: Communicator, mode: str) -> None:
    """Let the ranks of a group encode and decode every picture together; all have the result.

    `mode` is that of the axis `vae_pp`. With `tile` the result is bitwise that of the tiled VAE, so
    `use_tiling` has to be on; the other modes give that of the whole picture up to the order of
    sums. A group of one rank changes nothing. Raises `DiagnosticError` where the plan does not hold
    for the VAE, and `ValueError` where it has no rules for bands, or later, on all ranks alike,
    where a picture is too small for them.
    """
    if over.group.size == 1:
        return
    found = vae_findings(plan) or vae_bind_findings(plan, vae)
    if found:
        raise DiagnosticError(found)
    if mode == "tile":
        share_tiles(plan, vae, over)
    elif Part.BANDS in plan.parts:
        cut_bands(plan, vae, over, _DIMS[mode])
    else:
        message = f"nothing is known about bands of `{plan.name}`; take the mode `tile`"
        raise ValueError(message)
