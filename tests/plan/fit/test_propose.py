"""`--fit`: proposals with their reasons, and a strategy file that gives exactly the first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.fit.propose import FitRequest, Fitted, fit, strategy_text
from stagemesh.plan.fit.render import fit_data, fit_text
from stagemesh.plan.make import make
from stagemesh.plan.values import Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import CheckpointConfigs, PipelineConfig
from stagemesh.spec.unset import UNSET
from tests.plan.cost.known import FLUX, QWEN_IMAGE, WAN
from tests.plan.fit.fitting import PICTURE, SPEECH, SPEECH_FACTS, installed

FIXTURES: Final = Path(__file__).parents[2] / "fixtures"
HOST: Final = Host(kind="cpu", count=None, memory_bytes=64 * 2**30)


def with_facts(model: PipelineConfig, facts: Mapping[str, StageFacts]) -> PipelineConfig:
    """A model whose checkpoint says this, whatever is in its file."""

    def read(_configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
        return facts

    return replace(model, facts=read)


SPEAKING: Final = with_facts(SPEECH, SPEECH_FACTS)
PAINTING: Final = with_facts(PICTURE, {"thinker": QWEN_IMAGE})


def inputs(folder: Path, **changes: Any) -> PlanInputs:  # noqa: ANN401  any field of the inputs
    """A checkpoint whose deploy file names the pipeline and nothing else."""
    (folder / "config.json").write_text("{}", encoding="utf-8")
    given: dict[str, Any] = {"deploy_config": {"pipeline": "toy"}, "devices": "8xH200", **changes}
    return PlanInputs(model=str(folder), **given)


def fitted(folder: Path, model: PipelineConfig, **changes: Any) -> Fitted:  # noqa: ANN401
    """Propose for a model of that folder."""
    given = inputs(folder, **changes)
    asked = FitRequest(inputs=replace(given, devices=UNSET), devices=str(given.devices))
    return fit(asked, HOST, installed(model))


def layout(plan: Plan) -> object:
    """Everything that a layout consists of."""
    return [
        (
            each.name,
            [(axis.axis, axis.size, axis.options, axis.routing, axis.groups) for axis in each.axes],
            each.replicas,
            each.memory,
        )
        for each in plan.stages
    ]


def planned_again(folder: Path, found: Fitted, catalog: Catalog, **changes: Any) -> Plan:  # noqa: ANN401
    """Write the strategy file of the first proposal and plan with it."""
    file = folder / "strategy.yaml"
    file.write_text(strategy_text(found.proposals[0], ["Made by a test."]), encoding="utf-8")
    made = make(inputs(folder, **{**changes, "strategy_config": str(file)}), HOST, catalog)
    assert made.plan is not None, made.diagnostics
    assert made.diagnostics == ()
    return made.plan


@pytest.mark.parametrize("devices", ["8xH200", "3xH200", "4xA100", "8xT4", "16xL4"])
def test_the_written_file_gives_exactly_the_layout(tmp_path: Path, devices: str) -> None:
    """The same devices, the same plan."""
    found = fitted(tmp_path, SPEAKING, devices=devices)
    again = planned_again(tmp_path, found, installed(SPEAKING), devices=devices)
    assert layout(again) == layout(found.proposals[0].plan)


@pytest.mark.parametrize(
    ("facts", "devices"), [(QWEN_IMAGE, "8xH100"), (WAN, "8xRTX4090"), (FLUX, "6xL40S")]
)
def test_so_does_one_for_a_denoising_stage(tmp_path: Path, facts: StageFacts, devices: str) -> None:
    """With overlays as well."""
    model = with_facts(PICTURE, {"thinker": facts})
    found = fitted(tmp_path, model, devices=devices)
    again = planned_again(tmp_path, found, installed(model), devices=devices)
    assert layout(again) == layout(found.proposals[0].plan)


def test_a_strategy_that_was_given_is_part_of_the_written_one(tmp_path: Path) -> None:
    """With its routing, its label and its options."""
    given = {
        "strategies": {
            "thinker": [
                {"axis": "tp", "size": 2, "name": "halves"},
                {"axis": "stage_replica", "size": 2, "routing": "hash", "key": "user"},
            ],
            "talker": [{"axis": "stage_pp", "size": 3}],
        }
    }
    found = fitted(tmp_path, SPEAKING, strategy_config=given)
    text = strategy_text(found.proposals[0], [])
    again = planned_again(tmp_path, found, installed(SPEAKING))
    assert layout(again) == layout(found.proposals[0].plan)
    assert "halves" in text
    assert "routing: hash" in text
    assert "key: user" in text


def test_axes_of_the_deploy_file_may_be_written_again(tmp_path: Path) -> None:
    """They are the same: no conflict."""
    deploy = {"pipeline": "toy", "stages": [{"stage_id": 0, "tensor_parallel_size": 4}]}
    found = fitted(tmp_path, SPEAKING, deploy_config=deploy)
    again = planned_again(tmp_path, found, installed(SPEAKING), deploy_config=deploy)
    assert layout(again) == layout(found.proposals[0].plan)


def test_a_file_without_axes_is_a_strategy_file(tmp_path: Path) -> None:
    """One device has nothing to lay out."""
    found = fitted(tmp_path, SPEAKING, devices="1xH200")
    assert strategy_text(found.proposals[0], ["Nothing."]) == "# Nothing.\nstrategies: {}\n"
    planned_again(tmp_path, found, installed(SPEAKING), devices="1xH200")


@pytest.mark.parametrize(
    ("model", "devices"),
    [
        ("qwen2_5_omni", "1xH200"),
        ("qwen2_5_omni", "3xH100"),
        ("qwen2_5_omni", "8xL40S"),
        ("qwen3_omni_moe", "4xH200"),
        ("qwen3_tts", "2xL4"),
        ("qwen3_omni_moe", "2xH200"),
        ("personaplex", "2xH100"),
        ("diffusers/flux2", "4xL40S"),
        ("diffusers/pixart", "2xT4"),
    ],
)
def test_devices_that_ship_with_the_model_are_in_nobodys_way(
    tmp_path: Path, model: str, devices: str
) -> None:
    """The file that is written is planned as it is, and gives exactly the layout."""
    given = PlanInputs(model=str(FIXTURES / model))
    found = fit(FitRequest(inputs=given, devices=devices), HOST)
    file = tmp_path / "strategy.yaml"
    file.write_text(strategy_text(found.proposals[0], []), encoding="utf-8")
    made = make(replace(given, strategy_config=file, devices=devices), HOST)
    assert made.plan is not None, made.diagnostics
    assert [each for each in made.diagnostics if each.is_error] == []
    assert layout(made.plan) == layout(found.proposals[0].plan)


@pytest.mark.parametrize(
    ("model", "devices"),
    [
        ("flux2", "4xL40S"),
        ("flux2", "2xH100"),
        ("pixart", "2xT4"),
        ("ltx", "2xT4"),
        ("hunyuan_video", "4xRTX4090"),
        ("wan2_2", "4xL4"),
    ],
)
def test_a_text_encoder_that_is_too_large_is_shared(model: str, devices: str) -> None:
    """By as many ranks as there are, which the screen says beside the axes."""
    given = PlanInputs(model=str(FIXTURES / "diffusers" / model))
    found = fit(FitRequest(inputs=given, devices=devices), HOST)
    best = found.proposals[0].stages[0]
    assert best.axes["tp.text_encoder"] == best.ranks > 1
    assert best.axes.get("tp") != 1
    assert f"tp.text_encoder={best.ranks}" in fit_text(found)


def test_devices_of_the_users_own_file_bind(tmp_path: Path) -> None:
    """Those of a deploy file that ships with the model do not."""
    deploy = {"pipeline": "toy", "stages": [{"stage_id": 0, "devices": "0,1"}]}
    found = fitted(tmp_path, SPEAKING, deploy_config=deploy)
    ranks = [
        rank.device for each in found.proposals[0].plan.stages[0].replicas for rank in each.ranks
    ]
    assert ranks == [0, 1]


def test_proposals_are_shown_with_what_they_take(tmp_path: Path) -> None:
    """The screen, of which speeds are estimates."""
    found = fitted(tmp_path, PAINTING, devices="8xH100")
    screen = Path(__file__).parent / "screens" / "picture.txt"
    assert fit_text(found) == screen.read_text(encoding="utf-8")


def test_the_data_holds_the_strategy_and_the_gains(tmp_path: Path) -> None:
    """What the screen says, and what a program needs to write the file."""
    found = fitted(tmp_path, SPEAKING)
    data: Any = json.loads(json.dumps(fit_data(found)))
    assert data["ranked_by"] == "throughput"
    best = data["proposals"][0]
    assert best["strategy"] == {
        "strategies": {
            "thinker": [{"axis": "stage_replica", "size": 5}],
            "talker": [{"axis": "stage_replica", "size": 2}],
        }
    }
    assert best["throughput_gain"] == 5.0
    assert best["stages"][0]["memory_bytes"] > 15_231_233_024
    assert [each["sent_bytes"] for each in best["stages"]] == [0, 0, 0]


def test_a_stage_that_cannot_tell_says_so(tmp_path: Path) -> None:
    """Nothing about its speed, its memory, or what it sends."""
    facts = {**SPEECH_FACTS, "talker": StageFacts()}
    given = {"strategies": {"code2wav": [{"axis": "tp", "size": 2}]}}
    found = fitted(tmp_path, with_facts(SPEECH, facts), strategy_config=given)
    assert [(each.code, each.is_error) for each in found.diagnostics] == [("PL133", False)]
    text = fit_text(found)
    assert "talker    -" in text
    assert "code2wav  tp=2" in text
    assert text.count("?") >= 2


def test_layouts_that_cannot_be_compared_are_an_error(tmp_path: Path) -> None:
    """A checkpoint without weights and without their number."""
    found = fitted(tmp_path, SPEECH)
    assert found.proposals == ()
    assert [each.code for each in found.diagnostics] == ["PL132"]


def test_no_layout_at_all_is_an_error_with_reasons(tmp_path: Path) -> None:
    """What the planner says to the layout as it was given is noted."""
    huge = replace(WAN, num_parameters=10**13)
    found = fitted(tmp_path, with_facts(PICTURE, {"thinker": huge}), devices="2xT4")
    assert found.proposals == ()
    (error,) = found.diagnostics
    assert (error.code, error.message) == ("PL131", "no layout of `toy` fits `2` `T4` devices")
    assert "needs" in error.notes[0].message


def refused(model: str, devices: str, *values: str, **changes: Any) -> Diagnostic:  # noqa: ANN401
    """The one error of a model for which nothing is proposed."""
    given = PlanInputs(model=str(FIXTURES / model), set_values=values, **changes)
    found = fit(FitRequest(inputs=given, devices=devices), HOST)
    assert found.proposals == ()
    (error,) = found.diagnostics
    return error


@pytest.mark.parametrize(
    ("model", "value", "code", "remedy"),
    [
        (
            "qwen2_5_omni",
            "thinker.tp=3",
            "AX030",
            "sizes that fit: `1`, `2`, `4`; this would fit: `--set thinker.tensor_parallel_size=2`",
        ),
        (
            "diffusers/flux",
            "dit.pp=58",
            "AX031",
            "choose a size up to `57`; this would fit: `--set dit.pipeline_parallel_size=8`",
        ),
    ],
)
def test_an_axis_that_can_never_be_is_told_as_it_is(
    model: str, value: str, code: str, remedy: str
) -> None:
    """However many devices there were, and with the sizes that it can have."""
    error = refused(model, "8xH100", value)
    assert (error.code, error.help) == (code, remedy)
    assert error.origin is not None
    assert error.origin.source == f"--set {value}"


FOUR: Final = ("ring_degree=2", "tensor_parallel_size=2", "text_encoder_tp_size=4")
"""The smallest layout that fits: three ranks would not divide the heads of the text encoder."""


@pytest.mark.parametrize(
    ("value", "offer"),
    [
        ("dit.devices=0,1", (*FOUR, "devices=0,1,2,3")),
        ("dit.devices=0,9", (*FOUR, "devices=0,1,2,3")),
        ("dit.tensor_parallel_size=16", ("tensor_parallel_size=8", "text_encoder_tp_size=8")),
    ],
)
def test_what_was_given_gives_way_in_an_offer(value: str, offer: tuple[str, ...]) -> None:
    """Nothing has room beside it, and more devices would not help."""
    error = refused("diffusers/flux2", "8xL40S", value)
    flags = " ".join(f"--set dit.{each}" for each in offer)
    assert error.code == "PL131"
    assert error.help == f"not as it was given; this would fit: `{flags}`"


def test_devices_that_are_listed_are_left_out_before_more_are_given() -> None:
    """Of more devices than an offer is sought for."""
    error = refused("diffusers/flux2", "64xL4", "dit.devices=0,1")
    assert error.help == (
        "list no devices for `dit`, give more or larger devices, or change how much the engines may"
        " keep of them"
    )


def test_an_overlay_that_lacks_ranks_is_not_what_stands_in_the_way() -> None:
    """Others would bring them, if there were room for any layout."""
    error = refused("diffusers/flux2", "2xT4", "dit.vae_patch_parallel_size=2")
    assert error.code == "PL131"
    assert error.help == (
        "give more or larger devices, or change how much the engines may keep of them"
    )


def test_other_mistakes_are_told_as_they_are(tmp_path: Path) -> None:
    """In the configuration, in the devices, or in what an engine takes."""
    deploy = {"pipeline": "toy", "stages": [{"stage_id": 0, "max_num_seqs": 0}]}
    assert fitted(tmp_path, SPEAKING, deploy_config=deploy).diagnostics != ()
    wrong = fitted(tmp_path, SPEAKING, devices="eight")
    assert [each.message for each in wrong.diagnostics] == [
        "`--fit` takes a number or a number and a name, got `eight`"
    ]
    engine = {"pipeline": "toy", "stages": [{"stage_id": 0, "engine": "steam"}]}
    told = fitted(tmp_path, SPEAKING, deploy_config=engine)
    assert [each.code for each in told.diagnostics] == ["PL020"]


def test_a_mistake_of_another_kind_is_told_with_it(tmp_path: Path) -> None:
    """Two stages, one of which has no layout and one an engine that is not there."""
    deploy = {
        "pipeline": "toy",
        "stages": [
            {"stage_id": 0, "tensor_parallel_size": 3},
            {"stage_id": 1, "engine": "steam"},
        ],
    }
    told = fitted(tmp_path, SPEAKING, deploy_config=deploy)
    assert {each.code for each in told.diagnostics} == {"AX030", "PL020"}
