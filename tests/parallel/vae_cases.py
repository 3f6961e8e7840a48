"""What the ranks of a pool do to test VAEs that they share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from stagemesh.models._diffusers.plans.lookup import vae_plan
from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.mesh.device_mesh import DeviceMesh
from stagemesh.parallel.vae.bands import cut_bands
from stagemesh.parallel.vae.bind import bind_vae
from stagemesh.parallel.vae.check import tiles_of
from stagemesh.spec.vae_plan import VaePlan, VaeRole
from tests.models.diffusers.tiny_vaes import TILES_ALONE, VAES

TINY = {**VAES, **TILES_ALONE}


def plan_of(short: str) -> VaePlan:
    """The plan of a class that has one."""
    plan = vae_plan(TINY[short].name)
    assert plan is not None
    return plan


def made(short: str) -> Any:  # noqa: ANN401  a class of diffusers
    """Make a VAE whose numbers are the same on all ranks, with tiles that are a part of it."""
    torch.manual_seed(0)
    vae = TINY[short].make("cpu")
    for module in vae.modules():  # norms begin as ones and zeros, which would hide mistakes
        if isinstance(module, torch.nn.GroupNorm):
            torch.nn.init.normal_(module.weight)
            torch.nn.init.normal_(module.bias)
    return vae


def tile(short: str, vae: Any) -> None:  # noqa: ANN401  a class of diffusers
    """Let it work in tiles of which its pictures are several."""
    vae.enable_tiling()
    step = TINY[short].picture[-1] // TINY[short].latent[-1]
    if short == "kl":
        vae.tile_sample_min_size, vae.tile_latent_min_size = 4 * step, 4
        return
    if short == "cogvideox":
        vae.enable_tiling(4 * step, 4 * step)
        return
    for side in ("height", "width"):
        setattr(vae, f"tile_sample_min_{side}", 2 * step)
        setattr(vae, f"tile_sample_stride_{side}", step)


def inputs(short: str, rows: int = 0, columns: int = 0) -> dict[str, torch.Tensor]:
    """Pictures and latents, so many rows and columns of the latent larger than the usual ones."""
    tiny, random = TINY[short], torch.Generator().manual_seed(1)
    factor = tiny.picture[-1] // tiny.latent[-1]
    picture = list(tiny.picture)
    latent = list(tiny.latent)
    for dim, more in ((-2, rows), (-1, columns)):
        latent[dim] += more
        picture[dim] += more * factor
    return {
        "decode": torch.randn(latent, generator=random),
        "encode": torch.randn(picture, generator=random),
    }


@torch.no_grad()
def run(vae: Any, way: str, given: torch.Tensor) -> torch.Tensor:  # noqa: ANN401  of diffusers
    """Encode or decode."""
    if way == "decode":
        decoded: torch.Tensor = vae.decode(given).sample
        return decoded
    encoded: torch.Tensor = vae.encode(given).latent_dist.parameters
    return encoded


def in_tiles(
    meshes: dict[str, DeviceMesh], short: str, rows: int = 0, columns: int = 0
) -> dict[str, list[int]]:
    """Bitwise what one rank gets; returns pieces here and in all, calls, bytes sent and made."""
    over = meshes["host_memory"].over("all")
    alone, shared = made(short), made(short)
    tile(short, alone)
    tile(short, shared)
    plan = plan_of(short)
    sizes = zip(tiles_of(plan, shared).size, TINY[short].picture[-2:], strict=True)
    assert any(size < side for size, side in sizes)
    bind_vae(plan, shared, over, "tile")
    told = {}
    for way, given in inputs(short, rows, columns).items():
        before, ran = over.traffic, count(shared, way)
        got = run(shared, way, given)
        after = over.traffic
        everything = count(alone, way)
        assert torch.equal(got, run(alone, way, given))
        told[way] = [
            len(ran),
            len(everything),
            after.calls - before.calls,
            after.sent_bytes - before.sent_bytes,
            sum(ran),
        ]
    return told


def count(vae: Any, way: str) -> list[int]:  # noqa: ANN401  a class of diffusers
    """Return a list that fills with the bytes that come out of the half that works."""
    half, found, worked = vae.decoder if way == "decode" else vae.encoder, [], []

    def work(_module: object, _args: object, _output: object) -> None:
        worked.append(1)

    def look(_module: object, _args: object, output: Any) -> None:  # noqa: ANN401  of diffusers
        if worked:  # where the shared way answers for its half, that does not work
            output = output[0] if isinstance(output, tuple) else output
            found.append(output.nbytes)
            worked.clear()

    half._modules[next(reversed(half._modules))].register_forward_hook(work)
    half.register_forward_hook(look)
    return found


def in_bands(
    meshes: dict[str, DeviceMesh],
    short: str,
    mode: str,
    *,
    rows: int = 0,
    columns: int = 0,
    without: str = "",
) -> dict[str, float]:
    """Return the largest error of each way, relative to the largest value.

    Modules of the kind `without` work as if a band were the picture.
    """
    over = meshes["host_memory"].over("all")
    alone, shared = made(short), made(short)
    plan = plan_of(short)
    rules = tuple(
        replace(rule, role=VaeRole.POINTWISE) if rule.kind == without else rule
        for rule in plan.rules
    )
    if without:  # which the check of the plan would refuse
        cut_bands(replace(plan, rules=rules), shared, over, -2)
    else:
        bind_vae(plan, shared, over, mode)
    told = {}
    for way, given in inputs(short, rows, columns).items():
        got, wanted = run(shared, way, given), run(alone, way, given)
        assert got.shape == wanted.shape
        assert torch.equal(got, from_first(got, over))
        told[way] = float((got - wanted).abs().max() / wanted.abs().max())
    return told


def from_first(tensor: torch.Tensor, over: Communicator) -> torch.Tensor:
    """What the first rank has."""
    whole = over.all_gather_v(tensor[None].contiguous(), 0, [1] * over.group.size)
    return whole[0]


def refused(meshes: dict[str, DeviceMesh], short: str, mode: str) -> str:
    """What is said of a picture that is too small, or of a VAE without rules."""
    over, vae = meshes["host_memory"].over("all"), made(short)
    try:
        bind_vae(plan_of(short), vae, over, mode)
        run(vae, "decode", inputs(short)["decode"].narrow(-2, 0, 1))
    except ValueError as error:
        return str(error)
    return "no error"
