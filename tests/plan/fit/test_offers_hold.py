"""An offer is tried before it is made: over layouts of every kind, each one leads to a plan."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.config.inputs import GivenField, PlanInputs
from stagemesh.plan.make import Made, make
from stagemesh.spec.unset import UNSET
from tests.config.flagged import text_of
from tests.examples import fewer
from tests.plan.fit.test_messages import FIXTURES, HOST

_OFFER: Final = re.compile("this would fit: `([^`]*)`")
_STAGES: Final[Mapping[str, Sequence[str]]] = {
    "moss_tts_local": ("talker", "codec"),
    "qwen2_5_omni": ("thinker", "talker", "code2wav"),
    "qwen3_tts": ("talker", "code2wav"),
    "qwen3_omni_moe": ("thinker", "talker", "code2wav"),
    "glm_image": ("ar", "dit"),
    "diffusers/qwen_image": ("dit",),
    "diffusers/wan2_2": ("dit",),
}
"""Stages of some models."""
_AXES: Final = ("tp", "cp", "dp", "ep", "hsdp", "sp_ulysses", "sp_ring", "cfg", "stage_replica")

_Deploy: TypeAlias = Mapping[str, object]
_Strategies: TypeAlias = Mapping[str, Sequence[Mapping[str, object]]]


def _inputs(
    model: str, devices: str, strategies: _Strategies, deploy: _Deploy | None = None
) -> PlanInputs:
    return PlanInputs(
        model=str(FIXTURES / model),
        devices=devices,
        strategy_config={"strategies": strategies},
        deploy_config=UNSET if deploy is None else deploy,
    )


def _offers(made: Made) -> list[str]:
    return _OFFER.findall(" ".join(each.help or "" for each in made.diagnostics))


def _followed(inputs: PlanInputs, offer: str) -> Made:
    """Plan again with the offer beside all that was given."""
    values = tuple(word for word in shlex.split(offer) if word != "--set")
    return make(dataclasses.replace(inputs, set_values=(*inputs.set_values, *values)), HOST)


@pytest.mark.parametrize(
    ("model", "devices", "strategies", "deploy", "offer"),
    [
        (  # replicas that share devices cannot be listed
            "moss_tts_local",
            "2xA100",
            {"codec": [{"axis": "stage_replica", "size": 4}]},
            {"base_config": "moss_tts_local", "stages": [{"stage_id": 1, "devices": "0,1"}]},
            "--set codec.devices=null",
        ),
        (
            "qwen2_5_omni",
            "8xH200",
            {"talker": [{"axis": "cp", "size": 8}, {"axis": "stage_replica", "size": 4}]},
            {"base_config": "qwen2_5_omni", "stages": [{"stage_id": 1, "devices": "1"}]},
            "--set talker.devices=null",
        ),
        (  # the size of the entry holds, whatever the shards are
            "diffusers/qwen_image",
            "2xA100",
            {"dit": [{"axis": "hsdp", "size": 4}]},
            None,
            "--set dit.hsdp=2",
        ),
        (  # a stage that leaves no device to the others
            "qwen3_omni_moe",
            "8xH200",
            {"thinker": [{"axis": "tp", "size": 8}]},
            None,
            "--set thinker.tensor_parallel_size=4",
        ),
        (
            "qwen3_omni_moe",
            "8xH200",
            {"thinker": [{"axis": "tp", "size": 8}]},
            {
                "stages": [
                    {"stage_id": 0, "devices": "0,1,2,3,4,5,6,7", "gpu_memory_utilization": 0.9},
                    {"stage_id": 1, "gpu_memory_utilization": 0.7},
                ]
            },
            "--set thinker.tensor_parallel_size=4 --set thinker.devices=0,1,2,3",
        ),
    ],
)
def test_what_a_list_or_a_field_cannot_say_is_said_in_another_way(
    model: str, devices: str, strategies: _Strategies, deploy: _Deploy | None, offer: str
) -> None:
    """Following the offer gives a plan."""
    inputs = _inputs(model, devices, strategies, deploy)
    assert _offers(make(inputs, HOST)) == [offer]
    followed = _followed(inputs, offer)
    assert followed.plan is not None, text_of(followed)


def test_an_offer_stands_in_place_of_what_was_typed() -> None:
    """Two values of one layer would contradict each other."""
    typed = dataclasses.replace(
        _inputs("qwen2_5_omni", "8xH200", {}), set_values=("thinker.tp=3", "thinker.max_num_seqs=2")
    )
    offer = "--set thinker.tensor_parallel_size=2"
    assert _offers(make(typed, HOST)) == [offer]
    assert _followed(typed, offer).plan is None
    kept = dataclasses.replace(typed, set_values=typed.set_values[1:])
    assert _followed(kept, offer).plan is not None


@pytest.mark.parametrize(
    "overrides",
    [
        {"thinker": {"tensor_parallel_size": 3}},
        {"0": {"tensor_parallel_size": 3, "max_num_seqs": 2}},
        {"thinker": {"tp": {"size": 3}}},
        '{"thinker": {"tensor_parallel_size": 3}}',
    ],
)
def test_an_offer_stands_in_place_of_overrides(overrides: str | dict[str, object]) -> None:
    """A wrong value gets the offer that it gets in a file."""
    inputs = _inputs("qwen2_5_omni", "8xH200", {"thinker": [{"axis": "tp", "size": 3}]})
    in_file = _offers(make(inputs, HOST))
    typed = dataclasses.replace(_inputs("qwen2_5_omni", "8xH200", {}), stage_overrides=overrides)
    assert in_file == _offers(make(typed, HOST))
    assert in_file == ["--set thinker.tensor_parallel_size=2"]


def test_an_offer_answers_devices_among_overrides_as_well() -> None:
    """A user's own list binds, so another one is offered."""
    typed = dataclasses.replace(
        _inputs("qwen2_5_omni", "8xH200", {}),
        stage_overrides={"thinker": {"tp": 3, "devices": "0,1,2"}},
    )
    offer = "--set thinker.tensor_parallel_size=2 --set thinker.devices=2,3"
    assert _offers(make(typed, HOST)) == [offer]


def test_an_offer_stands_in_place_of_overrides_of_several_stages() -> None:
    """One mistake that two stages share is told once, and answered at both."""
    size = {"tp": 5, "devices": None}
    typed = dataclasses.replace(
        _inputs("qwen2_5_omni", "8xH200", {}), stage_overrides={"thinker": size, "talker": size}
    )
    [offer] = _offers(make(typed, HOST))
    assert "thinker.tensor_parallel_size=" in offer
    assert "talker.tensor_parallel_size=" in offer


def test_nothing_is_offered_that_contradicts_what_cannot_be_taken_back() -> None:
    """A flag of all stages is no value of one of them, and stays."""
    given = GivenField(name="tensor_parallel_size", value=3, source="--tensor-parallel-size")
    inputs = dataclasses.replace(_inputs("qwen2_5_omni", "8xH200", {}), fields=(given,))
    made = make(inputs, HOST)
    assert made.plan is None
    for offer in _offers(made):
        assert _followed(inputs, offer).plan is not None


@st.composite
def _layouts(draw: st.DrawFn) -> PlanInputs:
    """Any model with a few axes of any size on any of its stages."""
    model = draw(st.sampled_from(sorted(_STAGES)))
    axes = st.lists(st.sampled_from(_AXES), min_size=1, max_size=2, unique=True)
    strategies = {
        stage: [{"axis": axis, "size": draw(st.sampled_from((2, 3, 4, 8)))} for axis in draw(axes)]
        for stage in _STAGES[model]
        if draw(st.booleans())
    }
    count, kind = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from(("A100", "H200")))
    return _inputs(model, f"{count}x{kind}", strategies)


@fewer(5)
@given(_layouts())
def test_every_offer_plans(inputs: PlanInputs) -> None:
    """Whatever the layout that does not fit."""
    made = make(inputs, HOST)
    offers = _offers(made)
    assert len(offers) <= 1
    for offer in offers:
        followed = _followed(inputs, offer)
        assert followed.plan is not None, f"{offer}\n{text_of(followed)}"
