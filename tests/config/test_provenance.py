"""Every value knows its layer, its place, and all that it replaced."""

from __future__ import annotations

import pytest

from stagemesh.config.settings import Sourced
from stagemesh.spec.origin import Layer
from stagemesh.spec.unset import UNSET
from tests.config.deploying import Show, chain, said
from tests.config.speech import Speech, flag, stage, told

BASE = """\
async_chunk: true
stages:
  - stage_id: 0
    gpu_memory_utilization: 0.9
    max_num_seqs: 32
  - stage_id: 1
    gpu_memory_utilization: 0.7
    max_num_seqs: 16
"""
OVERLAY = """\
base_config: deploy/omni.yaml
stages:
  - stage_id: 1
    gpu_memory_utilization: 0.5     # smaller GPU
"""


@pytest.mark.parametrize(
    ("name", "field", "expected", "layer"),
    [
        ("thinker", "gpu_memory_utilization", [(0.9, "deploy/omni.yaml:4:29")], Layer.DEPLOY),
        (
            "thinker",
            "max_num_seqs",
            [(8, "stage_overrides"), (32, "deploy/omni.yaml:5:19")],
            Layer.STAGE,
        ),
        (
            "talker",
            "gpu_memory_utilization",
            [(0.5, "my_overrides.yaml:4:29"), (0.7, "deploy/omni.yaml:7:29")],
            Layer.OVERLAY,
        ),
        ("talker", "max_num_seqs", [(16, "deploy/omni.yaml:8:19")], Layer.DEPLOY),
        ("thinker", "max_model_len", [(16384, "--max-model-len")], Layer.GLOBAL),
        ("talker", "max_model_len", [(16384, "--max-model-len")], Layer.GLOBAL),
        ("code2wav", "max_model_len", [(16384, "--max-model-len")], Layer.GLOBAL),
    ],
)
def test_the_worked_override_example_comes_out_as_documented(
    speech: Speech, name: str, field: str, expected: object, layer: Layer
) -> None:
    """T52: base, overlay, global flag and override of one stage, each value with its source."""
    (speech.folder / "deploy").mkdir()
    (speech.folder / "deploy" / "omni.yaml").write_text(BASE, encoding="utf-8")
    (speech.folder / "my_overrides.yaml").write_text(OVERLAY, encoding="utf-8")
    loaded = speech.load(
        deploy=speech.folder.joinpath("my_overrides.yaml").relative_to(speech.folder),
        overrides={"0": {"max_num_seqs": 8}},
        fields=(flag("max_model_len", "16384"),),
    )
    assert told(loaded) == []
    given = stage(loaded, name).fields[field]
    assert chain(given) == expected
    assert given.origin.layer is layer
    assert set(stage(loaded, "code2wav").fields) == {"max_model_len"}


def test_a_value_replaces_every_layer_below_it_in_order(show: Show) -> None:
    """Root, base, overlay, platform and this one start, all listed, highest first."""
    show.write(
        {
            "base.yaml": "quantization: six\nstages:\n- {stage_id: 0, quantization: one}\n"
            "platforms: {cpu: {stages: [{stage_id: 0, quantization: three}]}}\n",
            "deploy.yaml": "base_config: base.yaml\nquantization: five\n"
            "stages:\n- {stage_id: 0, quantization: two}\n",
        }
    )
    loaded = show.load(platform="cpu", stage_overrides={"thinker": {"quantization": "four"}})
    given = said(loaded, "thinker", "quantization")
    assert isinstance(given, Sourced)
    assert chain(given) == [
        ("four", "stage_overrides"),
        ("three", "base.yaml:4:56"),
        ("two", "deploy.yaml:4:31"),
        ("one", "base.yaml:3:31"),
        ("five", "deploy.yaml:2:15"),
        ("six", "base.yaml:1:15"),
    ]
    assert [each.origin.layer for each in (given, *given.superseded)] == [
        Layer.STAGE,
        Layer.PLATFORM,
        Layer.OVERLAY,
        Layer.DEPLOY,
        Layer.PIPELINE_WIDE,
        Layer.PIPELINE_WIDE,
    ]


def test_what_was_cleared_in_between_is_remembered(show: Show) -> None:
    """A scalar and a mapping that `null` took away before a higher layer spoke again."""
    show.write(
        {
            "base.yaml": "stages: [{stage_id: 0, share: 0.5, env: {A: b}}]",
            "deploy.yaml": "base_config: base.yaml\nstages: [{stage_id: 0, share: ~, env: ~}]",
        }
    )
    overrides = {"0": {"share": 0.25, "env": {"A": "c"}}}
    loaded = show.load(stage_overrides=overrides)
    given = said(loaded, "thinker", "share")
    assert isinstance(given, Sourced)
    assert chain(given) == [
        (0.25, "stage_overrides"),
        (None, "deploy.yaml:2:31"),
        (0.5, "base.yaml:1:31"),
    ]
    member = said(loaded, "thinker", "env.A")
    assert isinstance(member, Sourced)
    assert chain(member) == [
        ("c", "stage_overrides"),
        (None, "deploy.yaml:2:39"),
        ("b", "base.yaml:1:45"),
    ]
    assert said(show.load(), "thinker", "share") is UNSET


def test_the_plan_says_of_each_member_where_it_came_from(show: Show) -> None:
    """Members of mappings by their path, fields of the whole pipeline as well."""
    show.write(
        {
            "base.yaml": "edges: [{from: 0, to: 1, max_inflight: 2}]\n"
            "stages:\n- stage_id: 0\n  default_sampling_params: {temperature: 0.5}\n",
            "deploy.yaml": "base_config: base.yaml\nedges: [{from: 0, to: 1, max_inflight: 3}]\n"
            "data_parallel_size: 2\n"
            "stages:\n- stage_id: 0\n  default_sampling_params: {temperature: 0.25}\n",
        }
    )
    made = show.make()
    assert made.plan is not None, made.diagnostics
    values = made.plan.stage(0).values
    assert set(values) == {"axes.dp.size", "default_sampling_params.temperature"}
    assert values["axes.dp.size"].layer == "pipeline_wide"
    temperature = values["default_sampling_params.temperature"]
    assert (temperature.value, temperature.layer) == (0.25, "overlay")
    assert temperature.origin == "deploy.yaml:6:42"
    [old] = temperature.superseded
    assert (old.value, old.origin) == (0.5, "base.yaml:4:42")
    limit = made.plan.values["edges.0-1.max_inflight"]
    assert (limit.value, limit.layer, limit.origin) == (3, "overlay", "deploy.yaml:2:40")
    [old] = limit.superseded
    assert (old.value, old.origin) == (2, "base.yaml:1:40")
