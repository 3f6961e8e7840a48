"""What `null` takes back: remembered value by value, with who cleared what."""

from __future__ import annotations

import json

import pytest

from stagemesh.config.load import Loaded
from stagemesh.config.settings import Sourced
from tests.config.deploying import Show, chain

BASE = """\
async_chunk: false
edges: [{from: 0, to: 1, max_inflight: 2}]
stages:
  - stage_id: 0
    share: 0.5
    env: {A: b, C: d}
    tensor_parallel_size: 2
  - stage_id: 3
    use_hsdp: true
    hsdp_shard_size: 2
"""


def cleared(loaded: Loaded, stage: str | None = None) -> dict[str, Sourced[object]]:
    """What was taken back in a stage, or for the whole pipeline."""
    assert loaded.settings is not None, loaded.diagnostics
    if stage is None:
        return dict(loaded.settings.cleared)
    return dict(next(each.cleared for each in loaded.settings.stages if each.name == stage))


def over_base(show: Show, text: str) -> None:
    """Write a deploy file that lies on another."""
    show.write({"base.yaml": BASE, "deploy.yaml": f"base_config: base.yaml\n{text}"})


@pytest.mark.parametrize(
    ("entry", "path", "told"),
    [
        ("share: ~", "share", [(None, "deploy.yaml:2:31"), (0.5, "base.yaml:5:12")]),
        ("env: {A: ~}", "env.A", [(None, "deploy.yaml:2:33"), ("b", "base.yaml:6:14")]),
        ("env: ~", "env.C", [(None, "deploy.yaml:2:29"), ("d", "base.yaml:6:20")]),
        (
            "tensor_parallel_size: ~",
            "axes.tp.size",
            [(None, "deploy.yaml:2:46"), (2, "base.yaml:7:27")],
        ),
        ("max_num_seqs: ~", "max_num_seqs", [(None, "deploy.yaml:2:38")]),
        ("engine_extras: {share: ~}", "share", [(None, "deploy.yaml:2:47")]),
    ],
)
def test_a_null_of_an_overlay_names_what_it_takes_back(
    entry: str, path: str, told: list[tuple[object, str]], show: Show
) -> None:
    """Members one by one, axes by their size, and also where nothing was said below."""
    over_base(show, f"stages: [{{stage_id: 0, {entry}}}]")
    assert chain(cleared(show.load(), "thinker")[path]) == told


def test_every_form_of_the_command_line_clears(show: Show) -> None:
    """Flags for one stage, and overrides as JSON and as a mapping."""
    over_base(show, "")
    typed = json.dumps({"thinker": {"share": None}})
    for source, given in (
        ("--set thinker.share=null", {"set_values": ("thinker.share=null",)}),
        ("--stage-overrides", {"stage_overrides": typed}),
        ("stage_overrides", {"stage_overrides": {"thinker": {"share": None}}}),
    ):
        taken = cleared(show.load(**given), "thinker")["share"]
        assert chain(taken) == [(None, source), (0.5, "base.yaml:5:12")]
        assert taken.clears


def test_a_second_null_takes_back_the_same_value(show: Show) -> None:
    """Both are in the chain, the higher first."""
    over_base(show, "stages: [{stage_id: 0, share: ~}]")
    loaded = show.load(set_values=("thinker.share=null",))
    assert chain(cleared(loaded, "thinker")["share"]) == [
        (None, "--set thinker.share=null"),
        (None, "deploy.yaml:2:31"),
        (0.5, "base.yaml:5:12"),
    ]


def test_a_value_on_top_of_a_null_holds(show: Show) -> None:
    """Then nothing is cleared any more."""
    over_base(show, "stages: [{stage_id: 0, share: ~, env: ~}]")
    loaded = show.load(set_values=("thinker.share=0.25", "thinker.env.A=x"))
    assert list(cleared(loaded, "thinker")) == ["env.C"]


def test_the_whole_pipeline_and_its_edges_are_cleared(show: Show) -> None:
    """Edges as a file says them."""
    over_base(show, "async_chunk: ~\nedges: ~\n")
    taken = cleared(show.load())
    assert chain(taken["async_chunk"]) == [
        (None, "deploy.yaml:2:14"),
        (False, "base.yaml:1:14"),
    ]
    edge = ({"from": 0, "to": 1, "max_inflight": 2},)
    assert chain(taken["edges"]) == [(None, "deploy.yaml:3:8"), (edge, "base.yaml:2:8")]


def test_an_axis_that_is_switched_off_is_one_value(show: Show) -> None:
    """However many members of it were said."""
    over_base(show, "stages: [{stage_id: 3, use_hsdp: ~, hsdp_shard_size: ~}]")
    assert list(cleared(show.load(), "painter")) == ["axes.hsdp.size", "axes.hsdp.shard"]


def test_stages_as_a_whole_are_cleared_value_by_value(show: Show) -> None:
    """What the root says for every stage stays, and later entries hold."""
    show.write(
        {
            "first.yaml": "stages: [{stage_id: 0, share: 0.125, dtype: float16}]",
            "base.yaml": f"base_config: first.yaml\ndtype: bfloat16\n{BASE}",
            "deploy.yaml": "base_config: base.yaml\nstages: ~",
            "again.yaml": "base_config: deploy.yaml\nstages: ~",
            "top.yaml": "base_config: deploy.yaml\nstages: [{stage_id: 0, env: {A: z}}]",
        }
    )
    base = [(0.5, "base.yaml:7:12"), (0.125, "first.yaml:1:31")]
    taken = cleared(show.load(), "thinker")
    assert chain(taken["share"]) == [(None, "deploy.yaml:2:9"), *base]
    assert "dtype" not in taken
    assert chain(cleared(show.load("again.yaml"), "thinker")["share"]) == [
        (None, "again.yaml:2:9"),
        (None, "deploy.yaml:2:9"),
        base[0],
        (None, "deploy.yaml:2:9"),
        base[1],
    ]
    assert "env.A" not in cleared(show.load("top.yaml"), "thinker")


@pytest.mark.parametrize(
    "section",
    ["platforms: ~", "platforms: {cpu: ~}", "platforms: {cpu: {stages: ~}}"],
)
def test_sections_of_platforms_are_cleared(section: str, show: Show) -> None:
    """All of them, one, or the stages of one."""
    lower = "platforms: {cpu: {stages: [{stage_id: 0, share: 0.5}]}}"
    show.write({"base.yaml": lower, "deploy.yaml": f"base_config: base.yaml\n{section}"})
    column = len(section.rpartition("~")[0]) + 1
    assert chain(cleared(show.load(platform="cpu"), "thinker")["share"]) == [
        (None, f"deploy.yaml:2:{column}"),
        (0.5, "base.yaml:1:49"),
    ]
    assert cleared(show.load(platform="cuda"), "thinker") == {}
