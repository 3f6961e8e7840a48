"""Memory of a rank of a denoising stage, by its formulas and beside published figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.engines.diffusion import ENGINE
from stagemesh.plan.make import make
from stagemesh.plan.values import MemoryPlan
from stagemesh.spec.cost import Part, Pieces
from stagemesh.spec.engine import MemoryEstimate, MemoryInput
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import NoOptions
from tests.architecture.source import ROOT
from tests.plan.cost.known import FLUX, WAN, laid_out
from tests.plan.fit.test_messages import FIXTURES, HOST

GIB: Final = 2**30
PROCESS: Final = 256 * 2**20
"""What the process of a rank takes before anything is computed."""

FLUX_2_KLEIN: Final = StageFacts(
    num_attention_heads=24,
    num_kv_heads=24,
    head_dim=128,
    hidden_size=3072,
    intermediate_size=9216,
    num_layers=25,
    sequence_length=2048 * 2048 // 256 + 512,
    text_length=512,
    output_pixels=2048 * 2048,
    guidance=False,
    component_bytes={
        "transformer": 7_751_109_744,
        "text_encoder": 8_044_936_192,
        "vae": 168_120_878,
    },
)
"""FLUX.2-klein-4B at 2048 x 2048."""


def estimated(
    facts: StageFacts, pieces: Pieces | None = None, kind: str = "cuda", **fields: object
) -> MemoryEstimate:
    """Ask the engine alone."""
    given = MemoryInput(
        facts=facts,
        sizes={},
        args=NoOptions(),
        device_kind=kind,
        pieces=pieces or {},
        stage_args=fields,
    )
    found = ENGINE.memory(given)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("pieces", "published"),
    [
        ({Part.TOKENS: 4}, 24.46),
        ({Part.TOKENS: 4, Part.TILES: 4}, 17.34),
        ({Part.TOKENS: 4, Part.TILES: 4, Part.ENCODERS: 4}, 12.25),
    ],
)
def test_a_published_model_is_met_within_an_eighth(pieces: Pieces, published: float) -> None:
    """FLUX.2-klein-4B on four GPUs: Ulysses, then the VAE and the text encoder cut as well.

    The last one is furthest off: the embedding of a text encoder is not cut in practice, and a
    checkpoint does not say how large it is.
    """
    total = estimated(FLUX_2_KLEIN, pieces).total / GIB
    assert total == pytest.approx(published, rel=0.125)


def test_weights_are_cut_by_what_cuts_them() -> None:
    """The denoiser by width, layers and shards; text encoders and VAE stay whole."""
    transformer = FLUX.component_bytes["transformer"]
    others = sum(FLUX.component_bytes.values()) - transformer
    whole = estimated(FLUX).weights
    assert whole == transformer + others
    for pieces in ({Part.WIDTH: 4}, {Part.LAYERS: 4}, {Part.SHARDS: 4}):
        assert estimated(FLUX, pieces).weights == -(-transformer // 4) + others
    both = estimated(FLUX, {Part.WIDTH: 2, Part.SHARDS: 4}).weights
    assert both == pytest.approx(transformer / 8 + others, abs=2)
    assert estimated(FLUX, {Part.TOKENS: 4, Part.BRANCHES: 2}).weights == whole


def test_all_text_encoders_are_cut_whether_they_are_a_stage_or_not(tmp_path: Path) -> None:
    """A small one beside a large one too, as the guide says."""
    deploy = tmp_path / "split.yaml"
    deploy.write_text("pipeline: flux_split\n", encoding="utf-8")
    model, fields = str(FIXTURES / "diffusers/flux"), ("text_encoder.tp=8",)
    whole, cut = (
        make(
            PlanInputs(model=model, deploy_config=deploy, devices="16xH200", set_values=values),
            HOST,
        ).plan
        for values in ((), fields)
    )
    assert whole is not None
    assert cut is not None
    before, after = whole.stages[0].memory, cut.stages[0].memory
    assert before is not None
    assert after is not None
    assert after.weights == -(-before.weights // 8)
    guide = (ROOT / "docs/guide/diffusers.md").read_text(encoding="utf-8")
    assert "`tp` cuts all of them" in guide


def test_experts_are_cut_by_their_own_axis() -> None:
    """All other weights stay as the layers are cut."""
    facts = StageFacts(
        num_layers=2, hidden_size=8, num_experts=4, moe_intermediate_size=16, num_parameters=10_000
    )
    experts = 3 * 8 * 16 * 4 * 2 * 2
    spread = estimated(facts, {Part.EXPERTS: 4}).weights
    assert spread == 20_000 - experts + experts // 4
    assert estimated(facts, {Part.WIDTH: 2}).weights == 10_000


def test_components_on_the_host_leave_the_largest_one() -> None:
    """`enable_cpu_offload` holds one component at a time."""
    assert estimated(FLUX, enable_cpu_offload=True).weights == FLUX.component_bytes["transformer"]
    assert estimated(WAN, enable_cpu_offload=True).weights == 2 * (WAN.num_parameters or 0)


def test_activations_fall_with_the_tokens_and_the_inner_width() -> None:
    """Twelve tensors of the stream's width, and the inner one of the feed-forward block."""
    facts = replace(FLUX, output_pixels=None)
    base = PROCESS
    assert estimated(facts).workspace - base == 4608 * (12 * 3072 + 12288) * 2
    assert estimated(facts, {Part.TOKENS: 4}).workspace - base == 1152 * (12 * 3072 + 12288) * 2
    assert estimated(facts, {Part.WIDTH: 4}).workspace - base == 4608 * (12 * 3072 + 3072) * 2
    unknown = replace(facts, intermediate_size=None)
    assert estimated(unknown).workspace == estimated(facts).workspace


@pytest.mark.parametrize(
    ("pieces", "fields", "expected"),
    [
        ({}, {}, 1280 * 720 * 4 * 2048),
        ({Part.BANDS: 4}, {}, int(1280 * 720 * 4 * 2048 / 4 * 1.1)),
        ({Part.TILES: 4}, {}, 512 * 512 * 2048 + 3 * 1280 * 720 * 81 * 2),
        ({}, {"vae_use_tiling": True}, 512 * 512 * 2048 + 3 * 1280 * 720 * 81 * 2),
    ],
)
def test_decoding_a_clip_has_a_peak_of_its_own(
    pieces: Pieces, fields: dict[str, Any], expected: int
) -> None:
    """Four frames at once: whole, a band of them, or a tile beside the gathered clip."""
    facts = replace(WAN, sequence_length=1)
    assert estimated(facts, pieces, **fields).workspace - PROCESS == expected


def test_a_stage_without_a_decoder_has_no_such_peak() -> None:
    """A denoiser split from its VAE."""
    parts = {"transformer": 1000, "text_encoder": 1000}
    facts = replace(WAN, component_bytes=parts, sequence_length=None)
    assert estimated(facts).workspace == PROCESS


def test_two_denoisers_are_both_held() -> None:
    """One of them runs at a time."""
    facts = replace(WAN, component_bytes={"transformer": 10**9, "transformer_2": 10**9 + 2})
    assert estimated(facts).weights == 2 * 10**9 + 2
    forward = ENGINE.forward
    assert forward is not None
    given = MemoryInput(facts=facts, sizes={}, args=NoOptions(), device_kind="cuda")
    described = forward(given)
    assert described is not None
    assert described.weight_bytes == 10**9 + 2


def test_an_accelerator_holds_its_libraries_and_a_cpu_does_not() -> None:
    """One GiB in every process."""
    assert estimated(FLUX).context == GIB
    assert estimated(FLUX, kind="cpu").context == 0


def test_nothing_is_told_without_any_weights() -> None:
    """No file and no number of weights."""
    given = MemoryInput(
        facts=StageFacts(component_bytes={"vae": 5}),
        sizes={},
        args=NoOptions(),
        device_kind="cuda",
    )
    assert ENGINE.memory(given) is None


def test_the_whole_stage_counts_where_components_are_not_told_apart() -> None:
    """Its files, or the number of its weights."""
    assert estimated(StageFacts(weight_bytes=1000)).weights == 1000
    assert estimated(StageFacts(num_parameters=1000)).weights == 2000
    assert estimated(StageFacts(num_parameters=1000, weight_dtype="float32")).weights == 4000


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"sp_ulysses": 4}, 1152 * 2 * (24 + 24) * 128 * 2),
        ({"sp_ulysses": 4, "tp": 2}, 1152 * 2 * (12 + 12) * 128 * 2),
        ({"sp_ring": 4}, 1152 * 2 * 2 * 24 * 128 * 2 + 1152 * 24 * 129 * 4),
        ({"sp_ring": 2, "sp_ulysses": 2}, None),
        ({"sp_ring": 2, "hsdp": 2}, None),
    ],
)
def test_axes_add_what_their_exchanges_need(axes: dict[str, int], expected: int | None) -> None:
    """Staging of all-to-alls, blocks in flight and their merge, gathered blocks of weights."""
    facts = replace(FLUX, output_pixels=None)
    stage = laid_out(facts, axes)
    tokens = 4608 // (axes.get("sp_ulysses", 1) * axes.get("sp_ring", 1))
    inner = 12288 // axes.get("tp", 1)
    own = tokens * (12 * 3072 + inner) * 2 + PROCESS
    assert stage.memory is not None
    added = stage.memory.workspace - own
    if expected is not None:
        assert added == expected
    elif "hsdp" in axes:
        block = -(-FLUX.component_bytes["transformer"] // 57)
        assert added == 2304 * 2 * 2 * 24 * 128 * 2 + 2304 * 24 * 129 * 4 + 2 * block
    else:
        ring = 2304 * 2 * 2 * 12 * 128 * 2 + 2304 * 12 * 129 * 4
        assert added == ring + 1152 * 2 * 48 * 128 * 2


def test_a_text_encoder_is_cut_by_its_own_size() -> None:
    """Whatever cuts the denoiser."""
    alone = laid_out(FLUX, {"sp_ring": 2, "tp": {"size": 1, "text_encoder": 2}}).memory
    whole = laid_out(FLUX, {"sp_ring": 2}).memory
    assert alone is not None
    assert whole is not None
    parts = FLUX.component_bytes
    encoders = parts["text_encoder"] + parts["text_encoder_2"]
    assert whole.weights - alone.weights == encoders // 2


def test_the_plan_says_what_takes_the_memory() -> None:
    """The four parts of a rank and their sum."""
    memory = laid_out(FLUX, {}).memory
    assert memory is not None
    assert memory == MemoryPlan(
        weights=sum(FLUX.component_bytes.values()),
        cache=0,
        workspace=PROCESS + 1024 * 1024 * 2048,
        context=GIB,
    )
    assert memory.total == memory.weights + memory.workspace + GIB
