"""Sections of deploy files that hold on devices of one kind."""

from __future__ import annotations

import pytest

from stagemesh.config.schema import PLATFORMS
from stagemesh.spec.origin import Layer
from stagemesh.spec.unset import UNSET
from tests.config.deploying import Show, chain, said, values
from tests.config.speech import told

SECTIONS = """\
cuda_mps: true
model_runner: v1
stages:
- {stage_id: 0, max_num_seqs: 1, env: {A: a}}
platforms:
  cuda:
    model_runner: v2
    stages:
    - {stage_id: 0, max_num_seqs: 2, env: {B: b}, data_parallel_size: 2}
    - {stage_id: 3, max_num_seqs: 3}
  rocm:
    cuda_mps: false
  npu:
"""


def test_only_the_section_of_the_platform_holds(show: Show) -> None:
    """On top of everything else in the file; stages that it does not list may appear."""
    show.write({"deploy.yaml": SECTIONS})
    assert values(show, "max_num_seqs", platform="cuda") == [2, UNSET, UNSET, 3]
    assert values(show, "axes.dp.size", platform="cuda") == [2, UNSET, UNSET, UNSET]
    assert values(show, "env", platform="cuda")[0] == {"A": "a", "B": "b"}
    assert values(show, "model_runner", platform="cuda") == ["v2"] * 4
    for platform in (None, "rocm", "npu", "cpu"):
        assert values(show, "max_num_seqs", platform=platform) == [1, UNSET, UNSET, UNSET]
        assert values(show, "model_runner", platform=platform) == ["v1"] * 4
    for platform, expected in (("cuda", True), ("rocm", False)):
        loaded = show.load(platform=platform)
        assert loaded.settings is not None
        assert loaded.settings.fields["cuda_mps"].value is expected


def test_values_of_a_section_are_of_its_layer(show: Show) -> None:
    """With the place in the section, and what they replaced."""
    show.write({"deploy.yaml": SECTIONS})
    given = said(show.load(platform="cuda"), "thinker", "max_num_seqs")
    assert given is not UNSET
    assert chain(given) == [(2, "deploy.yaml:9:35"), (1, "deploy.yaml:4:31")]
    assert given.origin.layer is Layer.PLATFORM
    assert given.origin.path == "platforms.cuda.stages[0].max_num_seqs"


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        ("platforms: ~", 1),
        ("platforms: {cuda: ~}", 1),
        ("platforms: {cuda: {stages: ~}}", 1),
        ("platforms: {npu: ~}", 2),
        ("platforms: {cuda: {model_runner: ~}}", 2),
        ("stages: ~", 2),
        ("stages: ~\nplatforms: ~", UNSET),
        ("stages: []", 2),
    ],
)
def test_null_takes_away_what_lower_files_say(show: Show, overlay: str, expected: object) -> None:
    """A section, all of them, or all entries of stages."""
    show.write({"base.yaml": SECTIONS, "deploy.yaml": f"base_config: base.yaml\n{overlay}\n"})
    assert values(show, "max_num_seqs", platform="cuda")[0] == expected


def test_every_section_is_checked_and_says_what_it_may_hold(show: Show) -> None:
    """Also those of other platforms."""
    show.write(
        {
            "deploy.yaml": "platforms:\n  npu: {dtype: a, cuda_mps: 1, model_runner: v3}\n"
            "  xpu: {stages: [{stage_id: 9}, {stage_id: 0, devices: a}]}\n"
            "  musa: []\n  cpu: {stages: {}}\n  1: {}\n"
        }
    )
    loaded = show.load(platform="cuda")
    assert [line.partition(" must ")[0] for line in told(loaded)] == [
        "CF010 deploy.yaml:2:9: unknown key `dtype` in `platforms.npu`",
        "CF012 deploy.yaml:2:29: `platforms.npu.cuda_mps`",
        "CF013 deploy.yaml:2:46: `platforms.npu.model_runner` does not take `v3`",
        "CF020 deploy.yaml:3:29: no stage `9` in this pipeline",
        "CF013 deploy.yaml:3:56: `thinker.devices`",
        "CF012 deploy.yaml:4:9: `platforms.musa`",
        "CF012 deploy.yaml:5:17: `platforms.cpu.stages`",
        "CF030 deploy.yaml:6:3: unknown platform `1`",
    ]
    assert loaded.diagnostics[0].help == "allowed here: `cuda_mps`, `model_runner`, `stages`"
    assert "with any of `stages`, `model_runner`, `cuda_mps`" in loaded.diagnostics[5].message
    show.write({"deploy.yaml": "platforms: [cuda]"})
    (found,) = told(show.load())
    assert found.startswith("CF012 deploy.yaml:1:12: `platforms` must be a mapping from platforms")


def test_a_plan_takes_the_section_of_its_devices(show: Show) -> None:
    """CPU slots, and imaginary devices by their vendor."""
    show.write(
        {
            "deploy.yaml": "platforms:\n"
            + "".join(
                f"  {name}: {{stages: [{{stage_id: 0, max_num_seqs: {index + 1}}}]}}\n"
                for index, name in enumerate(PLATFORMS)
            )
        }
    )
    for devices, platform in ((UNSET, "cpu"), ("8xH200", "cuda"), ("8xMI300X", "rocm")):
        plan = show.make(devices=devices).plan
        assert plan is not None
        assert plan.stage(0).engine_args["max_num_seqs"] == PLATFORMS.index(platform) + 1
