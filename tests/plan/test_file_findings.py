"""`validate` tells all that a file and its pipeline decide, in the planner's own words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.cli._main import main
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import make
from stagemesh.spec.diagnostic import Diagnostic
from tests.models.diffusers.published import HOST

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
OMNI: Final = "qwen2_5_omni"
SPLIT: Final = "flux_split"
MODELS: Final = {OMNI: FIXTURES / OMNI, SPLIT: FIXTURES / "diffusers" / "flux"}
CASES: Final[Sequence[tuple[str, Mapping[str, object], list[str]]]] = [
    (OMNI, {"stage_id": 0, "engine": "nope"}, ["PL020"]),
    (OMNI, {"stage_id": 2, "engine": "ar"}, ["PL021"]),
    (OMNI, {"stage_id": 0, "engine": "nope", "vae_use_tiling": True}, ["PL020", "PL027"]),
    (OMNI, {"stage_id": 2, "engine": "ar", "block_size": 3}, ["PL021"]),
    (OMNI, {"stage_id": 2, "engine": "nope", "block_size": 3}, ["PL020", "PL022"]),
    (OMNI, {"stage_id": 0, "engine": "nope", "block_size": 3, "dtype": "float32"}, ["PL020"]),
    (OMNI, {"stage_id": 2, "block_size": 3}, ["PL022"]),
    (OMNI, {"stage_id": 0, "engine": "ar", "delay_steps": 3}, ["PL022"]),
    (OMNI, {"stage_id": 0, "engine": "auto", "delay_steps": 3}, ["PL022"]),
    (OMNI, {"stage_id": 0, "vae_use_tiling": True}, ["PL027"]),
    (OMNI, {"stage_id": 0, "ulysses_degree": 2}, ["AX020"]),
    (OMNI, {"stage_id": 0, "default_sampling_params": {"foo": 1}}, ["PL024"]),
    (OMNI, {"stage_id": 0, "default_sampling_params": {"top_p": "a"}}, ["CF012"]),
    (
        OMNI,
        {"stage_id": 0, "engine": "nope", "default_sampling_params": {"foo": 1, "top_p": "a"}},
        ["PL020", "PL024", "CF012"],
    ),
    (
        OMNI,
        {"stage_id": 2, "engine": "ar", "default_sampling_params": {"a": 1}},
        ["PL021", "PL024"],
    ),
    (OMNI, {"stage_id": 0, "additional_config": {"foo": 1}}, ["PL024"]),
    (OMNI, {"stage_id": 0, "output_connectors": {"to_stage_1": "nope"}}, ["PL031"]),
    (OMNI, {"stage_id": 0, "tensor_parallel_size": 2, "devices": "0,1,2"}, ["PL010"]),
    (OMNI, {"stage_id": 0, "tensor_parallel_size": 2, "devices": "1,1"}, ["PL011"]),
    (
        OMNI,
        {"stage_id": 0, "tensor_parallel_size": 2, "num_replicas": 2, "devices": "1,2"},
        ["PL013"],
    ),
    (OMNI, {"stage_id": 0, "hsdp_shard_size": 2, "block_size": 3}, ["AX020"]),
    (OMNI, {"stage_id": 0, "hsdp_shard_size": 2, "vae_use_tiling": True}, ["AX020", "PL027"]),
    (OMNI, {"stage_id": 0, "moe_backend": "nope"}, ["PL095"]),
    (OMNI, {"stage_id": 0, "attention_backend": "nope"}, ["PL096"]),
    (OMNI, {"stage_id": 0, "env": {"CUDA_VISIBLE_DEVICES": "1"}}, ["PL113"]),
    (
        OMNI,
        {
            "stage_id": 0,
            "tensor_parallel_size": 2,
            "numa_bind": True,
            "numa_bind_nodes": [0, 1, 0],
            "numa_bind_cpus": ["0", "3-2"],
        },
        ["PL104", "PL105"],
    ),
    (
        OMNI,
        {"stage_id": 0, "tensor_parallel_size": 2, "distributed_executor_backend": "uni"},
        ["PL101"],
    ),
    (OMNI, {"stage_id": 1, "colocate_with": "nope"}, ["PL140"]),
    (OMNI, {"stage_id": 1, "tensor_parallel_size": 2, "colocate_with": 0}, ["PL142"]),
    (SPLIT, {"stage_id": 1, "diffusion_attention_config": {"defaul": "X"}}, ["PL089"]),
    (SPLIT, {"stage_id": 2, "cfg_parallel_size": 2}, ["AX020"]),
    (SPLIT, {"stage_id": 2, "lora_path": "/a"}, ["PL027"]),
    (SPLIT, {"stage_id": 2, "default_sampling_params": {"eta": 1}}, ["PL024"]),
]
"""A pipeline, the entry of a stage, and what is wrong with it."""


def validated(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Mapping[str, Any]]:
    """What is found in one file."""
    main(["validate", *map(str, arguments), "--json"])
    [file] = json.loads(capsys.readouterr().out)["files"]
    assert file["valid"] is not any(each["severity"] == "error" for each in file["diagnostics"])
    found: list[Mapping[str, Any]] = file["diagnostics"]
    return found


def planned(model: str, deploy: Path) -> tuple[Diagnostic, ...]:
    """What planning finds in it."""
    inputs = PlanInputs(model=str(MODELS[model]), deploy_config=str(deploy), devices="8xH200")
    return make(inputs, HOST).diagnostics


@pytest.mark.parametrize(("pipeline", "entry", "codes"), CASES)
def test_a_file_is_told_what_planning_would_tell(
    pipeline: str,
    entry: Mapping[str, object],
    codes: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the same rules, so in the same words and at the same place."""
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(json.dumps({"pipeline": pipeline, "stages": [entry]}), encoding="utf-8")
    found = validated(capsys, deploy)
    assert [each["code"] for each in found] == codes
    told = planned(pipeline, deploy)
    assert [each["message"] for each in found] == [each.message for each in told]
    helps = [each.help and each.help.partition("; this would fit: ")[0] for each in told]
    assert [each["help"] for each in found] == helps


def test_every_section_for_a_platform_is_held_against_the_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those that do not hold here; what all have in common is told once."""
    deploy = tmp_path / "deploy.yaml"
    section = {"stages": [{"stage_id": 0, "vae_use_tiling": True}]}
    value = {
        "pipeline": OMNI,
        "stages": [{"stage_id": 2, "block_size": 3}],
        "platforms": {"cuda": section, "rocm": {"stages": [{"stage_id": 1, "engine": "nope"}]}},
    }
    deploy.write_text(json.dumps(value), encoding="utf-8")
    assert [each["code"] for each in validated(capsys, deploy)] == ["PL022", "PL027", "PL020"]


@pytest.mark.parametrize(
    ("axes", "codes"),
    [
        ({"text_encoder": ["sp_ulysses"]}, ["AX020"]),
        ({"vae": ["tp"], "denoiser": ["vae_pp"]}, ["AX020", "AX020"]),
        ({"denoiser": ["tp", "sp_ulysses"], "vae": ["vae_pp"]}, []),
    ],
)
def test_axes_of_a_strategy_have_to_fit_their_stages(
    axes: Mapping[str, list[str]],
    codes: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """How many ranks they make together is a matter of the plan."""
    entries = {stage: [{"axis": each, "size": 2} for each in all_] for stage, all_ in axes.items()}
    strategy = tmp_path / "strategy.yaml"
    strategy.write_text(json.dumps({"strategies": entries}), encoding="utf-8")
    found = validated(capsys, strategy, "--pipeline", SPLIT)
    assert [each["code"] for each in found] == codes
    assert validated(capsys, strategy) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"stage_id": 0, "vae_patch_parallel_size": 2},
        {"stage_id": 0, "cache_config": {"a": 1}},
        {"stage_id": 0, "numa_bind_nodes": [0]},
        {"stage_id": 0, "devices": "0,1"},
        {"stage_id": 0, "tensor_parallel_size": 2, "devices": "0,1,2,3"},
        {"stage_id": 0, "numa_bind": True, "numa_bind_nodes": [0, 1]},
        {"stage_id": 0, "ulysses_mode": "strict"},
    ],
)
def test_what_flags_and_strategies_may_add_is_not_missed(
    entry: Mapping[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More ranks, or the option that another one needs."""
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(json.dumps({"pipeline": "flux", "stages": [entry]}), encoding="utf-8")
    assert validated(capsys, deploy) == []


@pytest.mark.parametrize(
    ("pipeline", "root", "codes"),
    [
        (OMNI, {"session_mode": "duplex"}, ["PL070"]),
        (OMNI, {"duplex_session": {"max_sessions": 3}}, ["PL071"]),
        ("qwen3_omni_moe", {"duplex_session": {"max_sessions": 3}}, []),
        (
            "qwen3_omni_moe",
            {"session_mode": "turn", "duplex_session": {"max_sessions": 3}},
            ["PL071"],
        ),
        (
            "qwen3_omni_moe",
            {"session_mode": "duplex", "duplex_session": {"replica_policy": "least_sessions"}},
            [],
        ),
    ],
)
def test_sessions_are_judged_as_far_as_a_file_decides(
    pipeline: str,
    root: Mapping[str, object],
    codes: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Flags may still give the mode, and members of the section."""
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(json.dumps({"pipeline": pipeline, **root}), encoding="utf-8")
    assert [each["code"] for each in validated(capsys, deploy)] == codes


@pytest.mark.parametrize(
    ("entry", "codes"),
    [
        ({"delay_steps": 3}, []),
        ({"default_sampling_params": {"delay_steps": 3}}, []),
        ({"delay_steps": 3, "vae_use_tiling": True}, ["PL027"]),
        ({"default_sampling_params": {"delay_steps": 3, "foo": 1}}, ["PL024"]),
    ],
)
def test_an_engine_may_be_named_later(
    entry: Mapping[str, object],
    codes: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So an option that another engine takes is wrong only where the file names one itself."""
    deploy = tmp_path / "deploy.yaml"
    value = {"pipeline": OMNI, "stages": [{"stage_id": 0, **entry}]}
    deploy.write_text(json.dumps(value), encoding="utf-8")
    assert [each["code"] for each in validated(capsys, deploy)] == codes
    later = PlanInputs(
        model=str(MODELS[OMNI]),
        deploy_config=str(deploy),
        devices="8xH200",
        set_values=("thinker.engine=fake",),
    )
    assert [each.code for each in make(later, HOST).diagnostics] == codes


def test_a_malformed_file_is_not_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the engine that was meant, options would be called wrong that are not."""
    deploy = tmp_path / "deploy.yaml"
    entry = {"stage_id": 2, "engine": 3, "block_size": 3}
    deploy.write_text(json.dumps({"pipeline": OMNI, "stages": [entry]}), encoding="utf-8")
    assert [each["code"] for each in validated(capsys, deploy)] == ["CF012"]
