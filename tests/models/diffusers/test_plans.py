"""Checkpoints of diffusers are found, planned whole and split, and refused with reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.cli._main import main
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.details import details_text
from stagemesh.plan.make import make
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.values import Plan
from stagemesh.spec.pipeline import ANY_CLASS, ExecutionType
from tests.models.diffusers.published import (
    BY_NAME,
    FAMILIES,
    FIXTURES,
    HOST,
    UNKNOWN,
    attempt,
    copy_of,
    edit,
    planned,
    told,
)

SPLIT: Final = ("text_encoder", "denoiser", "vae")


def worlds(plan: Plan) -> dict[str, tuple[int, int]]:
    """Ranks and replicas of every stage."""
    return {stage.name: (stage.world_size, len(stage.replicas)) for stage in plan.stages}


# --- which pipeline -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_a_published_checkpoint_is_told_by_its_class(name: str) -> None:
    """One stage, which takes text and puts out a picture or a clip."""
    plan = planned(FIXTURES / name)
    assert plan.pipeline == name
    assert worlds(plan) == {"dit": (1, 1)}
    clips = {"wan2_1", "wan2_2", "hunyuan_video", "ltx", "cogvideox"}
    assert plan.stages[0].final_output_type == ("video" if name in clips else "image")
    assert plan.not_runnable[0] == f"the networks of `{name}` are not connected to an engine yet"


@pytest.mark.parametrize("name", ["WanPipeline", "WanDMDPipeline", "WanImageToVideoPipeline"])
@pytest.mark.parametrize("version", ["wan2_1", "wan2_2"])
def test_both_versions_of_wan_have_the_same_classes(
    name: str, version: str, tmp_path: Path
) -> None:
    """T56: a second denoiser, or a time step for each token, came with the later one."""
    folder = copy_of(version, tmp_path)
    edit(folder / "model_index.json", lambda index: index.update(_class_name=name))
    assert planned(folder).pipeline == version


@pytest.mark.parametrize(
    ("values", "pipeline"),
    [
        ({"transformer_2": [None, None]}, "wan2_1"),
        ({"transformer_2": None}, "wan2_1"),
        ({"transformer_2": [None, None], "expand_timesteps": True}, "wan2_2"),
    ],
)
def test_a_component_that_is_null_is_none(
    values: Mapping[str, object], pipeline: str, tmp_path: Path
) -> None:
    """The smaller Wan 2.2 has one denoiser."""
    folder = copy_of("wan2_2", tmp_path)
    edit(folder / "model_index.json", lambda index: index.update(values))
    assert planned(folder).pipeline == pipeline


def test_no_class_belongs_to_two_families_but_those_of_wan() -> None:
    """So that one name means one model; predicates choose where it does not."""
    found: dict[str, list[str]] = {}
    for name, pipeline in BY_NAME.items():
        if pipeline.variant_of is None:
            for each in pipeline.diffusers_class_names:
                found.setdefault(each, []).append(name)
    several = {each: names for each, names in found.items() if len(names) > 1}
    assert several.pop(ANY_CLASS) == ["diffusers", "diffusers_video"]
    assert set(several) == set(BY_NAME["wan2_1"].diffusers_class_names)


@pytest.mark.parametrize(
    ("vae", "pipeline"),
    [
        (["diffusers", "AutoencoderKL"], "diffusers"),
        (["diffusers", "AutoencoderKLWan"], "diffusers_video"),
        (["diffusers", "NewAutoencoder"], "diffusers"),
        ([None, None], "diffusers"),
    ],
)
def test_any_other_class_is_planned_by_its_components(
    vae: list[str | None], pipeline: str, tmp_path: Path
) -> None:
    """A picture, or a clip where the VAE decodes clips; a VAE is not needed."""
    folder = copy_of(UNKNOWN, tmp_path)
    edit(folder / "model_index.json", lambda index: index.update(vae=vae))
    plan = planned(folder, {"dit": [{"axis": "stage_replica", "size": 2}]})
    assert plan.pipeline == pipeline
    assert plan.stages[0].final_output_type == ("image" if pipeline == "diffusers" else "video")
    assert worlds(plan) == {"dit": (1, 2)}


def test_a_vae_of_sound_has_no_pipeline(tmp_path: Path) -> None:
    """Both generic pipelines say no."""
    folder = copy_of(UNKNOWN, tmp_path)
    vae = ["diffusers", "AutoencoderOobleck"]
    edit(folder / "model_index.json", lambda index: index.update(vae=vae))
    made = attempt(folder)
    assert told(made) == ["MD008: `model_index.json` names no known model"]
    assert [note.message for note in made.diagnostics[0].notes] == [
        "`diffusers` answers to its `_class_name`, but its predicate says no",
        "`diffusers_video` answers to its `_class_name`, but its predicate says no",
    ]


@pytest.mark.parametrize("vae", [3, "AutoencoderKL", [], [1, 2, 3], {"a": 1}])
def test_a_malformed_vae_is_told_whatever_it_is(vae: object, tmp_path: Path) -> None:
    """The predicates of the generic pipelines take any value."""
    folder = copy_of(UNKNOWN, tmp_path)
    edit(folder / "model_index.json", lambda index: index.update(vae=vae))
    assert told(attempt(folder)) == [
        "MD032: `vae` of `model_index.json` must name a library and a class"
    ]


# --- strategies -----------------------------------------------------------------------------------


LAYOUTS: Final[Mapping[str, list[dict[str, object]]]] = {
    "qwen_image": [{"axis": "cfg", "size": 2}, {"axis": "sp_ulysses", "size": 4}],
    "flux": [{"axis": "sp_ulysses", "size": 2}, {"axis": "sp_ring", "size": 4}],
    "flux2": [{"axis": "tp", "size": 8}, {"axis": "vae_pp", "size": 4}],
    "wan2_1": [{"axis": "tp", "size": 4}, {"axis": "cfg", "size": 2}],
    "wan2_2": [{"axis": "hsdp", "size": 8}, {"axis": "sp_ulysses", "size": 8}],
    "z_image": [{"axis": "tp", "size": 2}, {"axis": "sp_ring", "size": 4}],
    "sd3": [{"axis": "tp", "size": 2}, {"axis": "cfg", "size": 2}, {"axis": "dp", "size": 2}],
    "hunyuan_video": [{"axis": "tp", "size": 2}, {"axis": "sp_ulysses", "size": 4}],
    "ltx": [{"axis": "tp", "size": 4}, {"axis": "cfg", "size": 2}],
    "pixart": [{"axis": "pp", "size": 4}, {"axis": "cfg", "size": 2}],
    "cogvideox": [{"axis": "tp", "size": 4}, {"axis": "cfg", "size": 2}],
}


UNWEIGHED: Final = {"ltx": ("memory of `dit`: how large `vae` is cannot be told",)}
"""What is not known of their components."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_axes_fit_published_denoisers(name: str) -> None:
    """Eight ranks each, with every check made."""
    plan = planned(FIXTURES / name, {"dit": LAYOUTS[name]})
    assert worlds(plan) == {"dit": (8, 1)}
    assert [axis.axis for axis in plan.stages[0].axes if axis.size > 1] != []
    assert plan.skipped_checks == UNWEIGHED.get(name, ())


def test_a_vae_of_its_own_sends_what_it_sends_in_the_whole() -> None:
    """The size of the picture is all that it takes to know; there are no tokens."""
    entry = {"axis": "vae_pp", "size": 4}
    whole = planned(FIXTURES / "flux", {"dit": [{"axis": "sp_ulysses", "size": 4}, entry]})
    split = planned(FIXTURES / "flux", {"vae": [entry]}, {"pipeline": "flux_split"})
    [expected] = [each.traffic for each in whole.stages[0].axes if each.axis == "vae_pp"]
    [found] = [each.traffic for each in split.stages[2].axes if each.axis == "vae_pp"]
    assert expected is not None
    assert found == replace(expected, tokens=0)
    assert split.skipped_checks == ()
    assert "4.5 MiB a request in 1 collective\n" in details_text(split)


def test_a_strategy_reaches_a_model_that_nobody_registered(tmp_path: Path) -> None:
    """T25: it is applied to the generic pipeline, if the networks of the checkpoint have plans."""
    folder = copy_of("flux", tmp_path)
    edit(folder / "model_index.json", lambda index: index.update(_class_name="OtherPipeline"))
    plan = planned(folder, {"dit": [{"axis": "sp_ulysses", "size": 2}]})
    assert plan.pipeline == "diffusers"
    assert worlds(plan) == {"dit": (2, 1)}


@pytest.mark.parametrize(
    ("name", "axis", "size", "expected"),
    [
        ("flux", "tp", 5, "AX030: `tp` size `5` does not fit the `24` query heads of `dit`"),
        ("z_image", "tp", 4, "AX030: `tp` size `4` does not fit the `30` query heads of `dit`"),
        ("wan2_2", "tp", 16, "AX030: `tp` size `16` does not fit the `40` query heads of `dit`"),
        ("flux", "cfg", 2, "AX035: `cfg` needs a model with guidance, and `dit` takes none"),
        ("hunyuan_video", "cfg", 2, "AX035: `cfg` needs a model with guidance, and `dit` takes"),
        ("pixart", "pp", 32, "AX031: `pp` size `32` exceeds the `28` layers of `dit`"),
        ("flux", "vae_pp", 2, "AX036: `vae_pp` size `2` exceeds the `1` rank of `dit`"),
    ],
)
def test_what_a_published_denoiser_cannot_do_is_refused(
    name: str, axis: str, size: int, expected: str
) -> None:
    """Before a weight is loaded."""
    made = attempt(FIXTURES / name, {"dit": [{"axis": axis, "size": size}]})
    assert made.plan is None
    assert told(made)[0].startswith(expected)


def test_a_published_denoiser_without_experts_has_none_to_spread() -> None:
    """On ranks that another axis brought."""
    axes: list[dict[str, object]] = [{"axis": "tp", "size": 2}, {"axis": "ep", "size": 2}]
    made = attempt(FIXTURES / "flux", {"dit": axes})
    assert made.plan is None
    assert told(made) == ["AX032: `ep` needs a mixture of experts, and `dit` has none"]


# --- split by declaration -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FAMILIES, UNKNOWN])
def test_every_checkpoint_can_be_split(name: str) -> None:
    """Text encoder, denoiser and VAE in a row, each with its own facts and folders."""
    family = planned(FIXTURES / name).pipeline
    cut: list[dict[str, object]] = [{"axis": "sp_ulysses", "size": 4}]
    if name == UNKNOWN:  # its denoiser has no plan
        cut = [{"axis": "dp", "size": 4}]
    plan = planned(
        FIXTURES / name,
        {
            "text_encoder": [{"axis": "tp", "size": 2}],
            "denoiser": [*cut, {"axis": "stage_replica", "size": 2}],
            "vae": [{"axis": "vae_pp", "size": 4}, {"axis": "stage_replica", "size": 2}],
        },
        {"pipeline": f"{family}_split"},
    )
    assert plan.pipeline == f"{family}_split"
    assert worlds(plan) == {"text_encoder": (2, 1), "denoiser": (4, 2), "vae": (4, 2)}
    assert [(edge.source, edge.target, edge.payload_type) for edge in plan.edges] == [
        (0, 1, "latent"),
        (1, 2, "latent"),
    ]
    assert [stage.execution_type for stage in plan.stages] == [
        ExecutionType.LLM_GENERATION.value,
        ExecutionType.DIFFUSION.value,
        ExecutionType.DIFFUSION.value,
    ]
    assert plan.not_runnable[0] == f"the networks of `{family}` are not connected to an engine yet"


def test_vae_pp_brings_the_ranks_of_a_vae_of_its_own() -> None:
    """One group of all its ranks; coordinates go along the axis."""
    plan = planned(
        FIXTURES / "flux", {"vae": [{"axis": "vae_pp", "size": 3}]}, {"pipeline": "flux_split"}
    )
    vae = plan.stage(2)
    assert vae.axes[0].groups == ((0, 1, 2),)
    assert [dict(rank.coords) for rank in vae.replicas[0].ranks] == [
        {"vae_pp": 0},
        {"vae_pp": 1},
        {"vae_pp": 2},
    ]


@pytest.mark.parametrize(
    ("stage", "axis", "reason"),
    [
        ("denoiser", "vae_pp", "the VAE is the stage `vae` here; give it `vae_pp`"),
        ("vae", "tp", "the layers of a VAE are not cut; `vae_pp` cuts the picture over its ranks"),
        ("vae", "sp_ring", "the layers of a VAE are not cut; `vae_pp` cuts the picture over its"),
        ("vae", "cfg", "guidance ends before the VAE; give `cfg` to `denoiser`"),
        ("vae", "hsdp", "a VAE is small: all of it lies on each of its ranks"),
        ("vae", "dp", "`stage_replica` makes copies of a VAE that serve requests of their own"),
        ("vae", "ep", "a VAE has no experts"),
    ],
)
def test_axes_without_meaning_for_a_part_are_refused(stage: str, axis: str, reason: str) -> None:
    """With what to write instead."""
    made = attempt(
        FIXTURES / "sd3", {stage: [{"axis": axis, "size": 2}]}, {"pipeline": "sd3_split"}
    )
    assert told(made) == [f"AX020: `{axis}` does not fit the stage `{stage}`"]
    assert str(made.diagnostics[0].help).startswith(reason)


def test_a_degree_for_every_stage_passes_those_that_exclude_its_axis() -> None:
    """Requests are spread over groups of ranks where that has a meaning."""
    deploy = {"pipeline": "sd3_split", "data_parallel_size": 2, "dtype": "bfloat16"}
    plan = planned(FIXTURES / "sd3", {}, deploy)
    assert worlds(plan) == {"text_encoder": (2, 1), "denoiser": (2, 1), "vae": (1, 1)}


@pytest.mark.parametrize(("pipeline", "ranks"), [("sd3_split", 4), ("sd3", 1)])
def test_the_flag_for_the_text_encoder_leads_to_its_stage(
    pipeline: str, ranks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T65: it is the degree of that stage, and an option of `tp` where there is none."""
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(f"pipeline: {pipeline}\n", encoding="utf-8")
    flags = ["--text-encoder-tp-size", str(ranks), "--devices", "8xH200", "--json"]
    assert main(["plan", str(FIXTURES / "sd3"), "--deploy-config", str(deploy), *flags]) == 0
    stage = json.loads(capsys.readouterr().out)["stages"][0]
    assert stage["world_size"] == ranks
    assert [axis["axis"] for axis in stage["axes"]] == ["tp"]


def test_guidance_is_checked_at_the_denoiser_of_a_split() -> None:
    """FLUX.1 dev has distilled guidance."""
    made = attempt(
        FIXTURES / "flux",
        {"denoiser": [{"axis": "cfg", "size": 2}]},
        {"pipeline": "flux_split"},
    )
    assert told(made) == ["AX035: `cfg` needs a model with guidance, and `denoiser` takes none"]


def test_every_split_is_a_variant_and_is_never_guessed() -> None:
    """It is chosen by name alone, and its flag for the text encoder leads to that stage."""
    splits = [each for each in BY_NAME.values() if each.variant_of is not None]
    assert {f"{each.variant_of}_split" for each in splits} == {each.model_type for each in splits}
    assert len(splits) * 2 == len(BY_NAME)
    for each in splits:
        assert tuple(stage.model_stage for stage in each.stages) == SPLIT
        assert each.stage_cli_aliases == {
            "text_encoder_tp_size": ("text_encoder", "tensor_parallel_size")
        }
        folders = [folder for stage in each.stages for folder in stage.weight_folders]
        assert len(folders) == len(set(folders))
        assert each.stages[2].is_guided is False


@pytest.mark.parametrize("name", ["flux", "wan2_2", "sd3"])
def test_parts_of_a_split_weigh_together_what_the_whole_weighs(name: str) -> None:
    """Each component lies in one of them; the VAE alone holds pixels."""
    whole = planned(FIXTURES / name).stages[0].memory
    parts = [
        stage.memory for stage in planned(FIXTURES / name, {}, {"pipeline": f"{name}_split"}).stages
    ]
    assert whole is not None
    assert [part is not None for part in parts] == [True, True, True]
    assert sum(part.weights for part in parts if part) == pytest.approx(whole.weights, rel=1e-3)
    vae = parts[2]
    assert vae is not None
    assert vae.weights < 0.6e9 < vae.workspace


# --- saved plans ----------------------------------------------------------------------------------


def problems(file: Path) -> list[str]:
    """What speaks against a saved plan, by code."""
    return [found.code for found in open_saved(file, HOST).diagnostics]


@pytest.mark.parametrize("pipeline", ["flux", "flux_split"])
def test_a_saved_plan_comes_back_and_notices_a_changed_component(
    pipeline: str, tmp_path: Path
) -> None:
    """Every configuration file that was read counts, and one that appears."""
    folder = copy_of("flux", tmp_path)
    vae = "vae" if pipeline == "flux_split" else "dit"
    axes = {vae: [{"axis": "stage_replica", "size": 2}]}
    file = tmp_path / "plan.json"
    file.write_text(to_json(planned(folder, axes, {"pipeline": pipeline})), encoding="utf-8")
    assert problems(file) == []
    config = folder / "vae" / "config.json"
    before = config.read_text(encoding="utf-8")
    config.write_text(before + "\n", encoding="utf-8")
    assert problems(file) == ["PL042"]
    config.write_text(before, encoding="utf-8")
    assert problems(file) == []
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "config.json").write_text("{}", encoding="utf-8")
    assert problems(file) == ["PL042"]


def test_a_changed_index_is_noticed_too(tmp_path: Path) -> None:
    """The file at the root."""
    folder = copy_of("flux", tmp_path)
    file = tmp_path / "plan.json"
    file.write_text(to_json(planned(folder)), encoding="utf-8")
    edit(folder / "model_index.json", lambda index: index.update(_diffusers_version="0.36.0"))
    assert problems(file) == ["PL042"]


def test_weights_of_another_form_are_said_not_to_be_counted(tmp_path: Path) -> None:
    """And a saved plan says the same again."""
    folder = copy_of("flux", tmp_path)
    (folder / "vae" / "diffusion_pytorch_model.bin").write_bytes(b"1")
    plan = planned(folder)
    assert plan.skipped_checks == ("weights in `vae`: they are no safetensors files",)
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    assert problems(file) == []


# --- broken checkpoints ---------------------------------------------------------------------------


def broken(folder: Path, pipeline: str | None = None) -> list[str]:
    """What is told about a checkpoint, with the file at fault."""
    made = attempt(folder, None, None if pipeline is None else {"pipeline": pipeline})
    assert made.plan is None
    for found in made.diagnostics:
        assert found.origin is not None
        assert len(found.message) <= 100
    return [
        f"{found.code} {Path(str(found.origin and found.origin.source)).relative_to(folder)}:"
        f" {found.message}"
        for found in made.diagnostics
    ]


def test_an_index_without_a_denoiser_says_what_it_has(tmp_path: Path) -> None:
    """The precise reason, rather than that no model fits."""
    folder = copy_of(UNKNOWN, tmp_path)
    edit(folder / "model_index.json", lambda index: index.pop("unet"))
    assert broken(folder) == ["MD030 model_index.json: the checkpoint lists no denoiser"]
    (found,) = attempt(folder).diagnostics
    assert found.help == (
        "looked for `transformer` or `transformer_2` or `unet`; components: `scheduler`,"
        " `text_encoder`, `text_encoder_2`, `tokenizer`, `tokenizer_2`, `vae`"
    )


def test_a_split_needs_all_three_parts(tmp_path: Path) -> None:
    """Each missing one is told."""
    folder = copy_of(UNKNOWN, tmp_path)
    gone = {"vae": [None, None], "text_encoder": [None, None], "text_encoder_2": None}
    edit(folder / "model_index.json", lambda index: index.update(gone))
    assert attempt(folder).plan is not None
    assert broken(folder, "diffusers_split") == [
        "MD030 model_index.json: the checkpoint lists no text encoder",
        "MD030 model_index.json: the checkpoint lists no VAE",
    ]


def test_a_checkpoint_without_an_index_lists_nothing(tmp_path: Path) -> None:
    """A deploy file may name the pipeline of another one."""
    (tmp_path / "config.json").write_text('{"model_type": "x"}', encoding="utf-8")
    assert broken(tmp_path, "flux") == ["MD030 config.json: the checkpoint lists no denoiser"]
    (tmp_path / "d.yaml").write_text("# mine\npipeline: flux\n", encoding="utf-8")
    (named,) = make(
        PlanInputs(model=str(tmp_path), deploy_config=tmp_path / "d.yaml"), HOST
    ).diagnostics
    assert [(note.message, str(note.origin).rpartition("/")[2]) for note in named.notes] == [
        ("`flux` is asked for here", "d.yaml:2:11")
    ]
    assert str(attempt(tmp_path, None, {"pipeline": "flux"}).diagnostics[0].help).endswith("none")


def test_everything_that_is_wrong_with_components_is_told_at_once(tmp_path: Path) -> None:
    """Each mistake with its own file."""
    folder = copy_of("sd3", tmp_path)
    edit(folder / "model_index.json", lambda index: index.update(image_encoder=["transformers"]))
    (folder / "transformer" / "config.json").write_text('{"a": ', encoding="utf-8")
    (folder / "text_encoder" / "config.json").write_text("[]", encoding="utf-8")
    (folder / "text_encoder_2" / "config.json").unlink()
    edit(folder / "text_encoder_3" / "config.json", lambda config: config.update(num_layers="24"))
    (folder / "vae" / "config.json").unlink()
    (folder / "vae" / "config.json").mkdir()
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "config.json").write_bytes(b"\xff")
    assert broken(folder) == [
        (
            "MD032 model_index.json: `image_encoder` of `model_index.json` must name a library and"
            " a class"
        ),
        (
            "MD006 transformer/config.json: `transformer/config.json` is not valid JSON: expecting"
            " value"
        ),
        "MD006 text_encoder/config.json: `text_encoder/config.json` must hold an object",
        (
            "MD031 model_index.json: `text_encoder_2/config.json`, which `model_index.json` lists,"
            " is missing or empty"
        ),
        (
            "MD033 model_index.json: `text_encoder_3/config.json` has a value that no such network"
            " can have"
        ),
        "MD005 vae/config.json: `vae/config.json` cannot be read: Is a directory",
        "MD006 scheduler/config.json: `scheduler/config.json` is not valid JSON",
    ]


def test_what_is_not_weighed_is_said(tmp_path: Path) -> None:
    """A text encoder of an unknown kind counts as nothing, and the plan says so."""
    folder = copy_of("flux", tmp_path)
    config = folder / "text_encoder_2" / "config.json"
    changed = {**json.loads(config.read_text("utf-8")), "model_type": "zork"}
    config.write_text(json.dumps(changed), encoding="utf-8")
    told = planned(folder, {}).skipped_checks
    assert told == ("memory of `dit`: how large `text_encoder_2` is cannot be told",)


def test_a_missing_folder_is_a_missing_file(tmp_path: Path) -> None:
    """An incomplete download."""
    folder = copy_of("pixart", tmp_path)
    (folder / "transformer" / "config.json").unlink()
    (folder / "transformer").rmdir()
    assert broken(folder) == [
        (
            "MD031 model_index.json: `transformer/config.json`, which `model_index.json` lists,"
            " is missing or empty"
        )
    ]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("flux", {"num_layers": 1.5}),
        ("flux", {"num_layers": True}),
        ("flux", {"num_layers": -1}),
        ("flux", {"num_layers": 0}),
        ("flux", {"num_attention_heads": 2**13}),
        ("flux", {"joint_attention_dim": 10**30}),
        ("flux", {"guidance_embeds": "yes"}),
        ("flux2", {"mlp_ratio": 0}),
        ("flux2", {"mlp_ratio": float("inf")}),
        ("flux2", {"mlp_ratio": float("nan")}),
        ("flux2", {"mlp_ratio": "3"}),
        ("wan2_1", {"patch_size": [1, 2]}),
        ("wan2_1", {"patch_size": 2}),
        ("wan2_1", {"patch_size": [1, 2, None]}),
        ("wan2_1", {"patch_size": []}),
        ("wan2_1", {"patch_size": [1] * 65}),
        ("sd3", {"dual_attention_layers": 3}),
    ],
)
def test_numbers_that_no_network_has_are_told(
    name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    """With the key and the value; nothing absurd is computed."""
    folder = copy_of(name, tmp_path)
    edit(folder / "transformer" / "config.json", lambda config: config.update(values))
    assert broken(folder) == [
        (
            "MD033 model_index.json: `transformer/config.json` has a value that no such network can"
            " have"
        )
    ]
    assert f"`{next(iter(values))}`" in str(attempt(folder).diagnostics[0].help)


def test_a_malformed_value_of_the_index_itself_is_no_traceback(tmp_path: Path) -> None:
    """`is_distilled` is read from there."""
    folder = copy_of("flux2", tmp_path)
    edit(folder / "model_index.json", lambda index: index.update(is_distilled="no"))
    edit(
        folder / "transformer" / "config.json", lambda config: config.update(guidance_embeds=False)
    )
    assert broken(folder) == [
        "MD010 model_index.json: `model_index.json` has a value that `flux2` cannot use"
    ]


def test_a_component_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    """Names of components are names of folders, and nothing else is read."""
    folder = copy_of("flux", tmp_path / "inner")
    outside = tmp_path / "inner" / "secret"
    outside.mkdir()
    (outside / "config.json").write_text("no JSON", encoding="utf-8")
    edit(folder / "model_index.json", lambda index: index.update({"../secret": ["a", "b"]}))
    assert planned(folder).pipeline == "flux"


def test_fixtures_are_small() -> None:
    """Configurations alone, as they are published."""
    for file in FIXTURES.rglob("*"):
        if file.is_file():
            assert file.stat().st_size < 2000
            assert isinstance(json.loads(file.read_text(encoding="utf-8")), dict)
