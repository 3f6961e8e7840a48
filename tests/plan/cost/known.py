"""Published models as facts, and their traffic under a layout: what the tests of costs start from.

Lengths are those of 1024 x 1024 (FLUX.1), 2048 x 2048 (Qwen-Image), 1280 x 720 with 81 frames
(Wan 2.1 14B) and 1280 x 720 with 129 frames (HunyuanVideo).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from stagemesh.engines.diffusion import ENGINE
from stagemesh.plan.build import PlanResult, build
from stagemesh.plan.devices import IMAGINARY, Devices
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import ExecutionType
from tests.plan.making import Said, axis, catalog, request, solo

FLUX: Final = StageFacts(
    num_attention_heads=24,
    num_kv_heads=24,
    head_dim=128,
    hidden_size=3072,
    intermediate_size=12288,
    num_layers=57,
    num_row_linears=19 * 2 + 38,
    sequence_length=4608,
    text_length=512,
    output_size=64,
    output_pixels=1024 * 1024,
    guidance=False,
    component_bytes={
        "transformer": 23_802_947_256,
        "text_encoder": 246_144_152,
        "text_encoder_2": 9_524_648_072,
        "vae": 167_666_902,
    },
)
QWEN_IMAGE: Final = StageFacts(
    num_attention_heads=24,
    num_kv_heads=24,
    head_dim=128,
    hidden_size=3072,
    intermediate_size=12288,
    num_layers=60,
    num_row_linears=120,
    sequence_length=16640,
    text_length=256,
    output_size=64,
    output_pixels=2048 * 2048,
    guidance=True,
    num_parameters=20_430_401_088,
)
WAN: Final = StageFacts(
    num_attention_heads=40,
    num_kv_heads=40,
    head_dim=128,
    hidden_size=5120,
    intermediate_size=13824,
    num_layers=40,
    num_row_linears=120,
    sequence_length=75600,
    text_length=0,
    output_size=64,
    output_pixels=1280 * 720 * 81,
    output_frames=81,
    guidance=True,
    num_parameters=14_288_491_584,
)
HUNYUAN_VIDEO: Final = StageFacts(
    num_attention_heads=24,
    num_kv_heads=24,
    head_dim=128,
    hidden_size=3072,
    intermediate_size=12288,
    num_layers=60,
    num_row_linears=20 * 2 + 40,
    sequence_length=119056,
    text_length=256,
    output_size=64,
    output_pixels=1280 * 720 * 129,
    output_frames=129,
    guidance=False,
    num_parameters=12_821_012_544,
)


def attempted(
    facts: StageFacts,
    axes: Mapping[str, int | Mapping[str, object]],
    *,
    device: str = "H200",
    fields: Mapping[str, object] | None = None,
) -> PlanResult:
    """Plan one denoising stage under axes, each given by its size or by `size` and options."""
    said = [
        axis(name, size) if isinstance(size, int) else axis(name, **size)  # type: ignore[arg-type]
        for name, size in axes.items()
    ]
    given = request(
        solo(ExecutionType.DIFFUSION),
        {"thinker": Said(axes=said, fields=fields)},
        facts=facts,
        devices=Devices(kind=device, count=64, memory_bytes=IMAGINARY.get(device), imaginary=True),
    )
    installed = replace(catalog(), engines={ENGINE.name: ENGINE})
    return build(given, installed)


def laid_out(
    facts: StageFacts,
    axes: Mapping[str, int | Mapping[str, object]],
    *,
    device: str = "H200",
    fields: Mapping[str, object] | None = None,
) -> StagePlan:
    """Plan what must be possible."""
    return _plan(attempted(facts, axes, device=device, fields=fields)).stages[0]


def _plan(result: PlanResult) -> Plan:
    assert result.plan is not None, result.diagnostics
    return result.plan


def sent(facts: StageFacts, **axes: int) -> Mapping[str, int]:
    """Bytes that the busiest rank sends for each axis."""
    return {
        each.axis: each.traffic.sent_bytes
        for each in laid_out(facts, axes).axes
        if each.traffic is not None
    }
