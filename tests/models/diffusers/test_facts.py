"""What configurations of diffusers say, against the numbers of published checkpoints.

The number of weights of each network is the exact one of its class, counted on that configuration;
the formulas leave out biases, norms and tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from stagemesh.spec.facts import StageFacts, WeightFiles
from stagemesh.testing.configs import MemoryConfigs
from tests.models.diffusers.published import UNKNOWN, changed, dit, facts_of, files_of

PER_CENT = 0.4
"""How far the formulas may be off; VAEs are held to `VAE_PER_CENT`."""
VAE_PER_CENT = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published denoiser."""

    heads: int
    """Query heads."""
    layers: int
    """Blocks, double and single together."""
    hidden: int
    """Width."""
    inner: int
    """Inner width of the feed-forward block."""
    weights: int
    """Exact number of weights."""
    sequence: int
    """Tokens of a forward at the model's own size."""
    text: int
    """Tokens of the prompt among them."""
    guidance: bool | None
    """Whether guidance costs a second pass."""
    sums: int
    """Exits of blocks into the stream."""
    output: int = 64
    """Numbers that leave for each token of the picture."""
    size: tuple[int, int, int] = (1, 1024, 1024)
    """Frames, height and width of its own picture or clip."""
    head_dim: int = 128
    """Width of a head."""


DENOISERS = {
    "qwen_image": Published(
        heads=24, layers=60, hidden=3072, inner=12288, weights=20_430_401_088,
        sequence=4096 + 512, text=512, guidance=True, sums=120,
    ),
    "flux": Published(
        heads=24, layers=19 + 38, hidden=3072, inner=12288, weights=11_901_408_320,
        sequence=4096 + 512, text=512, guidance=False, sums=2 * 19 + 38,
    ),
    "flux2": Published(
        heads=48, layers=8 + 48, hidden=6144, inner=18432, weights=32_223_281_152,
        sequence=4096 + 512, text=512, guidance=False, sums=2 * 8 + 48, output=128,
    ),
    "wan2_1": Published(
        heads=12, layers=30, hidden=1536, inner=8960, weights=1_418_996_800,
        sequence=21 * 30 * 52, text=0, guidance=True, sums=3 * 30, size=(81, 480, 832),
    ),
    "wan2_2": Published(
        heads=40, layers=40, hidden=5120, inner=13824, weights=2 * 14_288_491_584,
        sequence=21 * 30 * 52, text=0, guidance=True, sums=3 * 40, size=(81, 480, 832),
    ),
    "z_image": Published(
        heads=30, layers=30, hidden=3840, inner=10240, weights=6_154_908_736,
        sequence=4096 + 512, text=512, guidance=True, sums=2 * (30 + 2),
    ),
    "sd3": Published(
        heads=38, layers=38, hidden=2432, inner=9728, weights=8_056_627_520, head_dim=64,
        sequence=4096 + 333, text=333, guidance=True, sums=2 * 38,
    ),
    "hunyuan_video": Published(
        heads=24, layers=20 + 40, hidden=3072, inner=12288, weights=12_821_012_544,
        sequence=33 * 45 * 80 + 256, text=256, guidance=False, sums=2 * 20 + 40,
        size=(129, 720, 1280),
    ),
    "ltx": Published(
        heads=32, layers=28, hidden=2048, inner=8192, weights=1_923_385_472, head_dim=64,
        sequence=21 * 16 * 22, text=0, guidance=True, sums=3 * 28, output=128, size=(161, 512, 704),
    ),
    "pixart": Published(
        heads=16, layers=28, hidden=1152, inner=4608, weights=611_349_152, head_dim=72,
        sequence=4096, text=0, guidance=True, sums=3 * 28, output=32,
    ),
    "cogvideox": Published(
        heads=48, layers=42, hidden=3072, inner=12288, weights=5_570_283_072, head_dim=64,
        sequence=13 * 30 * 45 + 226, text=226, guidance=True, sums=2 * 42, size=(49, 480, 720),
    ),
}  # fmt: skip

T5, UMT5, CLIP_L, CLIP_G = 4_762_310_656, 5_680_910_336, 123_060_480, 694_659_840

ENCODERS = {
    "qwen_image": [8_292_166_656],
    "flux": [CLIP_L, T5],
    "flux2": [24_011_361_280],
    "wan2_1": [UMT5],
    "wan2_2": [UMT5],
    "z_image": [4_022_468_096],
    "sd3": [123_650_304, CLIP_G, T5],
    "hunyuan_video": [7_505_186_816, CLIP_L],
    "ltx": [T5],
    "pixart": [T5],
    "cogvideox": [T5],
}
"""Exact numbers of weights of the text encoders."""

VAES = {
    "qwen_image": 126_892_531,
    "flux": 83_819_683,
    "flux2": 84_046_115,
    "wan2_1": 126_892_531,
    "wan2_2": 126_892_531,
    "z_image": 83_819_683,
    "sd3": 83_819_683,
    "hunyuan_video": 246_478_803,
    "pixart": 83_653_863,
    "cogvideox": 215_583_907,
}
"""Exact numbers of weights of the VAEs whose formula is known: all but LTX-Video's."""


@pytest.mark.parametrize("name", DENOISERS)
def test_a_denoiser_says_its_published_numbers(name: str) -> None:
    """Heads, depth, widths, size and the tokens of a forward."""
    want, got = DENOISERS[name], dit(changed(name))
    assert (got.num_attention_heads, got.num_kv_heads) == (want.heads, want.heads)
    assert (got.num_layers, got.hidden_size) == (want.layers, want.hidden)
    assert (got.intermediate_size, got.head_dim) == (want.inner, want.head_dim)
    assert (got.sequence_length, got.text_length) == (want.sequence, want.text)
    assert (got.guidance, got.num_experts) == (want.guidance, 0)
    assert (got.num_row_linears, got.output_size) == (want.sums, want.output)
    frames, height, width = want.size
    assert (got.output_frames, got.output_pixels) == (frames, frames * height * width)
    assert got.num_parameters == pytest.approx(want.weights, rel=PER_CENT / 100)


@pytest.mark.parametrize("name", ENCODERS)
def test_text_encoders_are_counted_by_their_own_configurations(name: str) -> None:
    """Bytes follow from the number of weights and the type that the file tells."""
    got = facts_of(changed(name), "diffusers_split")["text_encoder"]
    files = files_of(name)
    assert got.num_parameters == pytest.approx(sum(ENCODERS[name]), rel=PER_CENT / 100)
    folders = ["text_encoder", "text_encoder_2", "text_encoder_3"][: len(ENCODERS[name])]
    assert list(got.component_bytes) == folders
    for folder, weights in zip(folders, ENCODERS[name], strict=True):
        told = files[folder].get("torch_dtype", files[folder].get("dtype"))
        width = 4 if told == "float32" else 2
        assert got.component_bytes[folder] == pytest.approx(weights * width, rel=PER_CENT / 100)


@pytest.mark.parametrize("name", VAES)
def test_vaes_are_counted_by_one_formula(name: str) -> None:
    """Both halves, a level at a time."""
    got = facts_of(changed(name), "diffusers_split")["vae"]
    assert got.num_parameters == pytest.approx(VAES[name], rel=VAE_PER_CENT / 100)
    assert got.component_bytes == {"vae": 2 * (got.num_parameters or 0)}
    frames, height, width = DENOISERS[name].size
    assert (got.output_frames, got.output_pixels) == (frames, frames * height * width)


def test_a_vae_without_a_formula_has_no_size() -> None:
    """Nothing is guessed."""
    got = facts_of(changed("ltx"), "diffusers_split")["vae"]
    assert (got.num_parameters, got.component_bytes) == (None, {})
    assert got.output_pixels == 161 * 512 * 704


def test_a_vae_of_an_unknown_class_says_nothing_of_size() -> None:
    """How many pixels a cell of the latent stands for is not told."""
    configs = changed("ltx", {"vae._class_name": "NewAutoencoder"})
    assert facts_of(configs, "ltx_split")["vae"].output_pixels is None
    assert dit(configs).sequence_length is None


@pytest.mark.parametrize(("name", "heads"), [("flux", 64), ("hunyuan_video", 32), ("wan2_1", 64)])
def test_a_stage_that_holds_everything_knows_the_heads_of_its_text_encoder(
    name: str, heads: int
) -> None:
    """Those of the largest, which the split stage has as its own."""
    assert facts_of(changed(name), name)["dit"].num_encoder_heads == heads
    split = facts_of(changed(name), f"{name}_split")["text_encoder"]
    assert split.num_attention_heads == heads


def test_the_largest_text_encoder_says_how_often_all_are_cut() -> None:
    """T5 beside CLIP, Llama beside CLIP; a decoder has fewer key heads."""
    t5 = facts_of(changed("flux"), "flux_split")["text_encoder"]
    assert (t5.num_attention_heads, t5.hidden_size, t5.intermediate_size) == (64, 4096, 10240)
    assert (t5.num_layers, t5.head_dim, t5.weight_dtype) == (24, 64, "bfloat16")
    llama = facts_of(changed("hunyuan_video"), "hunyuan_video_split")["text_encoder"]
    assert (llama.num_attention_heads, llama.num_kv_heads, llama.head_dim) == (32, 8, 128)


# --- what else the files say ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "guidance"),
    [
        ("qwen_image", {"transformer.guidance_embeds": True}, False),
        ("flux", {"transformer.guidance_embeds": False}, None),
        ("flux", {"_class_name": "FluxFillPipeline", "transformer.guidance_embeds": None}, False),
        ("flux2", {"transformer.guidance_embeds": False}, False),
        (
            "flux2",
            {"_class_name": "Flux2KleinPipeline", "transformer.guidance_embeds": False},
            True,
        ),
        (
            "flux2",
            {
                "_class_name": "Flux2KleinPipeline",
                "transformer.guidance_embeds": False,
                "is_distilled": True,
            },
            False,
        ),
        ("wan2_1", {"_class_name": "WanDMDPipeline"}, False),
        ("hunyuan_video", {"transformer.guidance_embeds": False}, None),
        (
            "hunyuan_video",
            {
                "_class_name": "HunyuanSkyreelsImageToVideoPipeline",
                "transformer.guidance_embeds": False,
            },
            True,
        ),
        ("sd3", {"_class_name": "NewPipeline"}, None),
        ("flux", {"_class_name": "NewPipeline"}, False),
    ],
)
def test_guidance_depends_on_class_and_distillation(
    *, name: str, values: dict[str, object], guidance: bool | None
) -> None:
    """Distilled guidance is an input; what neither the class nor the file tells stays open."""
    assert dit(changed(name, values)).guidance is guidance


@pytest.mark.parametrize(
    ("name", "values", "sequence", "text"),
    [
        ("qwen_image", {"_class_name": "QwenImageEditPipeline"}, 2 * 4096 + 512, 512),
        ("flux", {"_class_name": "FluxKontextPipeline"}, 2 * 4096 + 512, 512),
        ("qwen_image", {"_class_name": "QwenImageLayeredPipeline"}, None, 512),
        ("hunyuan_video", {"_class_name": "HunyuanVideoImageToVideoPipeline"}, None, None),
        ("sd3", {"_class_name": "NewPipeline"}, None, None),
        ("pixart", {"_class_name": "NewPipeline"}, 4096, 0),
        ("cogvideox", {"_class_name": "NewPipeline"}, 17776, 226),
        ("wan2_2", {"_class_name": "NewPipeline"}, None, 0),
        ("wan2_1", {"vae.scale_factor_spatial": 16, "vae.scale_factor_temporal": 4}, 8190, 0),
        ("wan2_1", {"vae.dim_mult": None}, None, 0),
        ("cogvideox", {"transformer.patch_size_t": 2}, 7 * 30 * 45 + 226, 226),
        ("ltx", {"vae.spatial_compression_ratio": 16}, 21 * 32 * 44, 0),
        ("pixart", {"transformer.sample_size": 64}, 1024, 0),
        ("pixart", {"transformer.sample_size": None}, None, 0),
        ("sd3", {"transformer.sample_size": None}, 4429, 333),
    ],
)
def test_tokens_follow_from_class_vae_and_denoiser(
    name: str, values: dict[str, object], sequence: int | None, text: int | None
) -> None:
    """Pictures to edit join the sequence; what no file and no name tells is left open."""
    got = dit(changed(name, values))
    assert (got.sequence_length, got.text_length) == (sequence, text)


@pytest.mark.parametrize(
    ("name", "values", "weights"),
    [
        ("flux", {"transformer.guidance_embeds": False}, 11_891_178_560),
        (
            "flux2",
            {
                "transformer.num_layers": 5,
                "transformer.num_single_layers": 20,
                "transformer.num_attention_heads": 24,
                "transformer.joint_attention_dim": 7680,
                "transformer.guidance_embeds": False,
            },
            3_875_544_576,
        ),
        (
            "wan2_1",
            {
                "transformer.num_attention_heads": 24,
                "transformer.ffn_dim": 14336,
                "transformer.in_channels": 48,
                "transformer.out_channels": 48,
            },
            4_999_787_712,
        ),
        (
            "wan2_1",
            {
                "transformer.num_attention_heads": 40,
                "transformer.ffn_dim": 13824,
                "transformer.num_layers": 40,
                "transformer.in_channels": 36,
                "transformer.added_kv_proj_dim": 5120,
            },
            16_394_878_784,
        ),
        (
            "sd3",
            {
                "transformer.num_layers": 24,
                "transformer.num_attention_heads": 24,
                "transformer.dual_attention_layers": list(range(13)),
            },
            2_243_171_520,
        ),
        ("sd3", {"transformer.dual_attention_layers": None}, 8_056_627_520),
        (
            "ltx",
            {"transformer.num_layers": 48, "transformer.attention_head_dim": 128},
            13_042_569_344,
        ),
        (
            "cogvideox",
            {"transformer.num_layers": 30, "transformer.num_attention_heads": 30},
            1_693_783_872,
        ),
    ],
)
def test_other_sizes_of_a_class_follow_the_same_formula(
    name: str, values: dict[str, object], weights: int
) -> None:
    """FLUX.1 schnell, FLUX.2 klein, two of Wan, two of SD 3.5, LTX-Video 13B and CogVideoX 2B."""
    got = dit(changed(name, values)).num_parameters
    assert got == pytest.approx(weights, rel=PER_CENT / 100)


def test_a_missing_number_leaves_the_heads_alone() -> None:
    """The rest would have to be guessed."""
    got = dit(changed("flux", {"transformer.num_layers": None}))
    want = StageFacts(num_attention_heads=24, num_kv_heads=24, head_dim=128, guidance=None)
    assert {name: getattr(got, name) for name in ("num_layers", "hidden_size")} == {
        "num_layers": None,
        "hidden_size": None,
    }
    assert (got.num_attention_heads, got.head_dim) == (want.num_attention_heads, want.head_dim)
    assert got.num_parameters is None
    assert "transformer" not in got.component_bytes


def test_a_class_that_nobody_knows_says_its_heads_at_most() -> None:
    """The lists of a UNet are no heads; nothing else is guessed."""
    got = dit(changed(UNKNOWN))
    assert got.num_attention_heads is None
    assert set(got.component_bytes) == {"text_encoder", "text_encoder_2", "vae"}
    other = dit(changed("flux", {"transformer._class_name": "NewTransformer2DModel"}))
    assert (other.num_attention_heads, other.num_layers, other.guidance) == (24, None, None)


def test_an_encoder_of_an_unknown_type_has_no_size_but_its_type() -> None:
    """Then the sum is not known either."""
    values = {"text_encoder.model_type": "new", "text_encoder_2.d_ff": None}
    got = facts_of(changed("flux", values), "flux_split")["text_encoder"]
    assert (got.num_parameters, got.component_bytes, got.weight_dtype) == (None, {}, "bfloat16")


@pytest.mark.parametrize(
    ("values", "weights"),
    [
        ({"text_encoder.tie_word_embeddings": True}, 8_292_166_656 - 544_997_376),
        ({"text_encoder.architectures": ["Qwen2_5_VLModel"]}, 8_292_166_656 - 544_997_376),
        ({"text_encoder.architectures": None}, 8_292_166_656 - 544_997_376),
        ({"text_encoder.vision_config": {}}, 8_292_166_656 - 676_550_144),
    ],
)
def test_heads_and_eyes_of_an_encoder_are_counted_where_it_has_them(
    values: dict[str, object], weights: int
) -> None:
    """The matrix to words, and the vision tower."""
    got = facts_of(changed("qwen_image", values), "qwen_image_split")["text_encoder"]
    assert got.num_parameters == pytest.approx(weights, rel=PER_CENT / 100)


def test_plain_blocks_of_t5_have_two_matrices() -> None:
    """The first T5 had no gates."""
    values = {"text_encoder.is_gated_act": False, "text_encoder.feed_forward_proj": "relu"}
    got = facts_of(changed("ltx", values), "ltx_split")["text_encoder"].num_parameters
    assert got == pytest.approx(T5 - 24 * 4096 * 10240, rel=PER_CENT / 100)


# --- weight files ---------------------------------------------------------------------------------


def test_weight_files_say_more_than_formulas() -> None:
    """All there: the stage has its bytes. The type is that of the denoiser's files."""
    files = {
        "transformer": WeightFiles(num_bytes=100, dtype="float16"),
        "text_encoder": WeightFiles(num_bytes=20),
        "text_encoder_2": WeightFiles(num_bytes=3),
        "vae": WeightFiles(num_bytes=4),
    }
    got = dit(changed("flux", weights=files))
    assert got.component_bytes == {
        "transformer": 100,
        "text_encoder": 20,
        "text_encoder_2": 3,
        "vae": 4,
    }
    assert (got.weight_bytes, got.weight_dtype) == (127, "float16")
    whole = facts_of(changed("flux", weights=files), "flux_split")
    assert {name: each.weight_bytes for name, each in whole.items()} == {
        "text_encoder": 23,
        "denoiser": 100,
        "vae": 4,
    }


@pytest.mark.parametrize("gone", [None, WeightFiles(num_bytes=7, is_present=False)])
def test_a_component_without_its_files_leaves_the_stage_without_weights(
    gone: WeightFiles | None,
) -> None:
    """An index that tells the size is as good for an estimate, and nothing that could be run."""
    files = dict.fromkeys(
        ("transformer", "text_encoder", "text_encoder_2"), WeightFiles(num_bytes=1)
    )
    if gone is not None:
        files["vae"] = gone
    got = dit(changed("flux", weights=files))
    assert got.weight_bytes is None
    assert got.component_bytes["vae"] == (7 if gone else pytest.approx(2 * VAES["flux"], rel=0.01))


def test_further_networks_are_weighed_with_the_denoiser() -> None:
    """What has a configuration is a network; schedulers and tokenizers have none."""
    configs = changed("flux", {"controlnet": ["d", "C"]}, {"controlnet": WeightFiles(num_bytes=5)})
    configs = MemoryConfigs(
        files={**configs.files, "controlnet": {"_class_name": "C"}},
        weight_files=configs.weight_files,
    )
    assert dit(configs).component_bytes["controlnet"] == 5
    whole = facts_of(configs, "flux_split")
    assert set(whole["denoiser"].component_bytes) == {"transformer", "controlnet"}
    assert "controlnet" not in whole["text_encoder"].component_bytes
