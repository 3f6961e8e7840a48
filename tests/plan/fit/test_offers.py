"""What a message offers can be had: each offer is followed, and gives a plan."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import Final

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import make
from stagemesh.spec.unset import UNSET
from tests.config.flagged import text_of
from tests.plan.fit.test_messages import FIXTURES, HOST, PLACES
from tests.plan.test_flags_of_all_stages import fields_of

_OFFER: Final = re.compile("this would fit: `([^`]*)`")
_ONE: Final[Mapping[str, object]] = {"stages": []}
_TWO: Final[Mapping[str, object]] = {"stages": [{"stage_id": 0, "devices": "0,1"}]}
_CROWDED: Final = {
    "stages": [
        {"stage_id": 0, "devices": "0", "gpu_memory_utilization": 0.9},
        {"stage_id": 1, "devices": "0", "gpu_memory_utilization": 0.3},
        {"stage_id": 2, "devices": "1"},
    ]
}


def _every(*fields: str) -> str:
    """What is offered to the three stages of a speech model."""
    stages = zip(("thinker", "talker", "code2wav"), fields, strict=True)
    return " ".join(f"--set {stage}.{each}" for stage, said in stages for each in said.split())


@pytest.mark.parametrize(
    ("model", "deploy", "devices", "line", "offer"),
    [
        (  # places of one's own give way to a size, where there are idle devices
            "qwen2_5_omni",
            PLACES,
            "12xH200",
            "--tensor-parallel-size 4",
            "--set talker.devices=4,5,6,7 --set code2wav.devices=8,9,10,11",
        ),
        (  # but stages that were apart stay apart
            "qwen2_5_omni",
            PLACES,
            "5xH200",
            "--tensor-parallel-size 4",
            "--set talker.tensor_parallel_size=1 --set code2wav.tensor_parallel_size=1",
        ),
        (  # of sizes that cannot be, the nearest; the model's own places say nothing to it
            "qwen2_5_omni",
            None,
            "8xH200",
            "--tensor-parallel-size 3",
            _every(*["tensor_parallel_size=2"] * 3),
        ),
        ("qwen2_5_omni", _CROWDED, "8xH200", "", "--set talker.devices=2"),
        ("qwen2_5_omni", _CROWDED, "1xH200", "", None),
        (
            "personaplex",
            None,
            "8xH200",
            "--gpu-memory-utilization 0.1",
            "--set talker.tensor_parallel_size=2",
        ),
        (
            "diffusers/flux",
            _ONE,
            "4xH200",
            "--use-hsdp --hsdp-shard-size 8",
            "--set dit.hsdp_shard_size=4",
        ),
        (
            "diffusers/flux",
            _ONE,
            "4xH200",
            "--use-hsdp --hsdp-shard-size 4 --hsdp-replicate-size 2",
            "--set dit.hsdp_shard_size=4 --set dit.hsdp_replicate_size=null",
        ),
        (
            "diffusers/flux",
            _ONE,
            "8xH200",
            "--usp 2 --tensor-parallel-size 2 --use-hsdp",
            "--set dit.tensor_parallel_size=1",
        ),
        (
            "diffusers/flux",
            _ONE,
            "4xH200",
            "--usp 4 --ring 2 --sequence-parallel-size 8",
            "--set dit.sequence_parallel_size=null --set dit.ulysses_degree=2",
        ),
        (
            "diffusers/qwen_image",
            _TWO,
            "2xH200",
            "--usp 2 --cfg-parallel-size 2",
            "--set dit.ulysses_degree=1",
        ),
        (
            "diffusers/qwen_image",
            _TWO,
            "8xH200",
            "--usp 2 --cfg-parallel-size 2",
            "--set dit.devices=0,1,2,3",
        ),
        (
            "diffusers/qwen_image",
            _ONE,
            "4xH200",
            "--vae-patch-parallel-size 2",
            "--set dit.vae_patch_parallel_size=1",
        ),
        (
            "diffusers/flux",
            _ONE,
            "4xH200",
            "--cfg-parallel-size 2",
            "--set dit.cfg_parallel_size=1",
        ),
        (  # stages that fit alone and crowd each other
            "qwen3_omni_moe",
            None,
            "8xH200",
            "--tensor-parallel-size 8",
            "--set thinker.tensor_parallel_size=4 --set talker.tensor_parallel_size=4",
        ),
        ("qwen3_omni_moe", None, "1xH200", "", None),
        (  # the ranks that are there share the text encoder
            "diffusers/flux2",
            _ONE,
            "4xL40S",
            "--tensor-parallel-size 4",
            "--set dit.text_encoder_tp_size=4",
        ),
        (
            "diffusers/flux2",
            _ONE,
            "4xL40S",
            "--use-hsdp --usp 4",
            "--set dit.text_encoder_tp_size=4",
        ),
        (
            "diffusers/flux2",
            _ONE,
            "4xL40S",
            "",
            (
                "--set dit.ring_degree=2 --set dit.tensor_parallel_size=2"
                " --set dit.text_encoder_tp_size=4"
            ),
        ),
        (  # that others bring cannot stay more than they are
            "diffusers/flux2",
            _ONE,
            "2xH200",
            "--tensor-parallel-size 4 --text-encoder-tp-size 4",
            "--set dit.tensor_parallel_size=2 --set dit.text_encoder_tp_size=2",
        ),
    ],
)
def test_an_offer_keeps_what_it_can_and_gives_a_plan(
    model: str, deploy: Mapping[str, object] | None, devices: str, line: str, offer: str | None
) -> None:
    """One offer for all that is wrong, whatever the layout."""
    fields = fields_of(line)
    inputs = PlanInputs(
        model=str(FIXTURES / model),
        deploy_config=UNSET if deploy is None else deploy,
        devices=devices,
        fields=fields,
    )
    made = make(inputs, HOST)
    assert made.plan is None
    shown = text_of(made)
    assert _OFFER.findall(" ".join(each.help or "" for each in made.diagnostics)) == (
        [] if offer is None else [offer]
    ), shown
    if offer is None:
        return
    values = tuple(word for word in shlex.split(offer) if word != "--set")
    followed = make(dataclasses.replace(inputs, set_values=values), HOST)
    assert followed.plan is not None, text_of(followed)
    assert [found.code for found in followed.diagnostics if found.is_error] == []
