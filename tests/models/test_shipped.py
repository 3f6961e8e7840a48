"""Everything that ships with models is well: pipelines, their deploy files, and what both plan.

P11: no file that ships brings a message. The tables are written by hand on purpose, so that no file
comes or goes unseen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.fields import stage_fields
from stagemesh.config.topology import topology_findings
from stagemesh.config.validate import check_files
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.spec.pipeline import PipelineConfig
from tests.architecture.source import ROOT
from tests.models.shipping import CATALOG, FIXTURES, HOST, made, planned, told

MODELS: Final = ROOT / "src" / "stagemesh" / "models"
SCHEMA: Final = "# yaml-language-server: $schema=../../../../../schemas/deploy.schema.json"
MAX_LINES: Final = 60

SHIPPED: Final[dict[str, tuple[str, str]]] = {
    "glm_image": ("glm_image", "2xH200"),
    "minicpmo_4_5": ("minicpmo_4_5", "1xH200"),
    "moss_tts_local": ("moss_tts_local", "1xH200"),
    "moss_tts_local_npu_mrv2": ("moss_tts_local", "1xAscend910B"),
    "personaplex": ("personaplex", "1xH200"),
    "qwen2_5_omni": ("qwen2_5_omni", "2xH200"),
    "qwen2_5_omni_thinker_only": ("qwen2_5_omni", "1xH200"),
    "qwen3_omni_moe": ("qwen3_omni_moe", "2xH200"),
    "qwen3_omni_moe_thinker_only": ("qwen3_omni_moe", "1xH200"),
    "qwen3_tts": ("qwen3_tts", "1xH200"),
    "qwen3_tts_fused_single_gpu": ("qwen3_tts", "1xH200"),
    "qwen3_tts_high_concurrency": ("qwen3_tts", "2xH200"),
    "qwen3_tts_high_concurrency_mrv2": ("qwen3_tts", "2xH200"),
    "qwen3_tts_high_concurrency_mrv2_b4": ("qwen3_tts", "2xH200"),
    "qwen3_tts_high_concurrency_mrv2_single_gpu": ("qwen3_tts", "1xH200"),
    "qwen3_tts_mrv2": ("qwen3_tts", "1xH200"),
}
"""Checkpoint and devices for every deploy file that ships."""

ANSWERS: Final = {
    "glm_image": "glm_image",
    "minicpmo_4_5": "minicpmo_4_5",
    "moss_tts_local": "moss_tts_local",
    "personaplex": "personaplex",
    "qwen2_5_omni": "qwen2_5_omni",
    "qwen3_omni_moe": "qwen3_omni_moe",
    "qwen3_omni_moe_thinker_only": "qwen3_omni_moe_thinker_only",
    "qwen3_tts": "qwen3_tts",
}
"""The pipeline of every checkpoint, when no deploy file names one."""

TESTED_THERE: Final = {"diffusers", "voice_chat"}
"""Families whose own tests plan with their files."""
OTHER_PLATFORMS: Final = ("1xAscend910B", "1xMax1550", "1xMI300X", "1xMTTS4000")
CUDA_ALONE: Final = "qwen3_tts_fused_single_gpu"
REFUSED: Final = {
    (CUDA_ALONE, "1xAscend910B"): ["PL086"],
    (CUDA_ALONE, "1xMax1550"): ["PL086"],
    (CUDA_ALONE, "1xMI300X"): ["MD029"],
    (CUDA_ALONE, "1xMTTS4000"): ["MD029"],
    ("personaplex", "1xMTTS4000"): ["PL130"],
    ("qwen3_omni_moe_thinker_only", "1xAscend910B"): ["PL130"],
    ("qwen3_omni_moe_thinker_only", "1xMTTS4000"): ["PL130"],
}
"""Why a profile cannot be taken: the platform has not what it needs, or not the memory."""


def deploy_files() -> list[Path]:
    """Return every deploy file of the models."""
    return sorted(MODELS.glob("*/deploy/*.yaml"))


def pipelines() -> list[PipelineConfig]:
    """Return every pipeline of the models."""
    return [model.pipeline for model in CATALOG.models]


@pytest.mark.parametrize("pipeline", pipelines(), ids=lambda each: each.model_type)
def test_every_pipeline_is_well(pipeline: PipelineConfig) -> None:
    """Names, graph, output types, aliases and folders."""
    assert topology_findings(pipeline, CATALOG, stage_fields(CATALOG)) == ()


def family(path: Path) -> str:
    """Return the folder of a model that ships a file."""
    return path.parent.parent.name


def test_every_deploy_file_is_in_the_table() -> None:
    """But those of families that do the same in their own tests."""
    found = {path.stem for path in deploy_files() if family(path) not in TESTED_THERE}
    assert found == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_deploy_file_plans_without_a_word_and_can_be_saved(name: str, tmp_path: Path) -> None:
    """No error, no warning; and what is planned is planned again from its file."""
    checkpoint, devices = SHIPPED[name]
    plan = planned(checkpoint, name, devices)
    assert all(each.values["devices"].value is not None for each in plan.stages)  # none gives way
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    again = open_saved(file, HOST, CATALOG)
    assert told(again) == []
    assert again.plan == plan


def test_every_deploy_file_is_well_without_a_checkpoint_too() -> None:
    """Held against the pipeline that it names, that it is the default of, or of its family."""
    defaults = {each.default_deploy_config_name: each.model_type for each in pipelines()}
    for path in deploy_files():
        checked = check_files([path], defaults.get(path.stem, family(path)), CATALOG)
        assert checked.diagnostics == ()


@pytest.mark.parametrize("checkpoint", ANSWERS)
def test_every_checkpoint_is_known_without_a_deploy_file(checkpoint: str) -> None:
    """By its own keys, with the file that ships as the default."""
    assert planned(checkpoint).pipeline == ANSWERS[checkpoint]


def test_every_checkpoint_is_in_the_table() -> None:
    """A fixture that no pipeline answers to would be of no use."""
    folders = {path.name for path in FIXTURES.iterdir() if path.is_dir()}
    assert set(ANSWERS) <= folders


@pytest.mark.parametrize("path", deploy_files(), ids=lambda path: path.stem)
def test_every_deploy_file_is_small_and_explained(path: Path) -> None:
    """A line for editors, a comment, no line too long, and room on one screen."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == SCHEMA
    assert (path.parent / SCHEMA.partition("=")[2]).resolve().is_file()
    assert any("# " in line for line in lines[1:])
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("devices", OTHER_PLATFORMS)
@pytest.mark.parametrize(
    "name", [name for name, (_, devices) in SHIPPED.items() if devices == "1xH200"]
)
def test_profiles_of_one_device_plan_on_other_platforms(name: str, devices: str) -> None:
    """Their sections take back what only CUDA has; what still cannot be taken says why."""
    result = made(SHIPPED[name][0], name, devices)
    errors = [found.code for found in result.diagnostics if found.is_error]
    assert errors == REFUSED.get((name, devices), [])
    if result.plan is not None:
        assert {stage.setup.runner for stage in result.plan.stages} == {"v1"}
