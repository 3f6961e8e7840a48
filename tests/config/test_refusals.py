"""What stands in the wrong file or at the wrong place is told where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.config.speech import Speech

STRATEGY = "strategies: {thinker: [{axis: tp, size: 2}]}"
TO_STRATEGY = "give a strategy file as `--strategy-config`, in Python `strategy_config`"
TO_DEPLOY = "give a deploy file as `--deploy-config`, in Python `deploy_config`"
TP = "`tp` is an axis: write `tensor_parallel_size`, or an entry of a strategy file"
THE_KEY = "the key around it says which stage is meant; leave it out"
ROOT = "write it at the root of the deploy file"


@pytest.mark.parametrize(
    ("given", "code", "help_text"),
    [
        ({"deploy": STRATEGY}, "CF029", TO_STRATEGY),
        ({"deploy": "stages: [{stage_id: 0, strategies: {}}]"}, "CF029", TO_STRATEGY),
        ({"deploy": "platforms: {cuda: {strategies: {}}}"}, "CF029", TO_STRATEGY),
        ({"strategy": "stages: [{stage_id: 0}]"}, "CF011", TO_DEPLOY),
        ({"strategy": "pipeline: speech"}, "CF011", TO_DEPLOY),
        ({"strategy": f"{STRATEGY}\nstages: []"}, "CF029", TO_DEPLOY),
        ({"deploy": "stages: [{stage_id: 0, tp: 2}]"}, "CF010", TP),
        (
            {"deploy": "stages: [{stage_id: 0, hsdp: 2}]"},
            "CF010",
            "`hsdp` is an axis: write `use_hsdp`",
        ),
        ({"overrides": {"thinker": {"stage_id": 0}}}, "CF010", THE_KEY),
        ({"set_values": ("thinker.stage_id=0",)}, "CF010", THE_KEY),
        ({"overrides": {"thinker": {"stages": []}}}, "CF025", ROOT),
        ({"overrides": {"thinker": {"strategies": {}}}}, "CF029", TO_STRATEGY),
        ({"overrides": {"thinker": {"sp_ulyses": 2}}}, "CF010", "did you mean `sp_ulysses`?"),
        (
            {"overrides": {"stages": []}},
            "CF020",
            "a key here is the name or the number of a stage;",
        ),
        ({"overrides": {"tlker": []}}, "CF020", "did you mean `talker`?"),
        ({"overrides": {"strategies": {}}}, "CF020", "a key here is the name or the number of"),
        ({"overrides": {"stages": {"thinker": {"seed": 1}}}}, "CF020", "a key here is the name or"),
        ({"set_values": ("stages.thinker.seed=1",)}, "CF020", "a key here is the name or the"),
    ],
)
def test_it_is_told_once_and_where_it_belongs(
    speech: Speech, given: Mapping[str, Any], code: str, help_text: str
) -> None:
    """Rather than the nearest name, which would lead away."""
    (found,) = speech.load(**given).diagnostics
    assert found.code == code
    assert str(found.help).startswith(help_text)


def test_a_parameter_of_requests_has_a_place_of_its_own(speech: Speech) -> None:
    """What is near no field may be one; what is near a field is a slip of the pen."""
    loaded = speech.load(deploy="stages: [{stage_id: 0, num_inference_steps: 20, max_num_seq: 4}]")
    request, slip = (str(each.help) for each in loaded.diagnostics)
    assert "`default_sampling_params`" in request
    assert slip == "did you mean `max_num_seqs`?"


def test_a_saved_plan_is_no_deploy_file(speech: Speech) -> None:
    """One error, and none about each of its keys."""
    loaded = speech.load(deploy="{version: 1, checkpoint: {path: x}, stages: [{stage_id: 0}]}")
    [found] = loaded.diagnostics
    assert (found.code, found.message) == ("CF029", "this is a saved plan, which is no deploy file")
