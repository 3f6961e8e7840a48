"""A value that `null` took back is a change: plans count it, and `explain` names who cleared it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from stagemesh.plan.details import details_text
from stagemesh.plan.explain_value import explain_value, story_text
from stagemesh.plan.make import Made, make
from stagemesh.plan.render import plan_text
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.subject import record_of, subject_of
from stagemesh.plan.tally import tally
from stagemesh.plan.values import Plan
from tests.plan.saving import HOST, STRATEGY
from tests.plan.test_explain_value import TOYS, inputs

SET: Final = (
    "thinker.max_num_seqs=null",
    "thinker.default_sampling_params.stop_token_ids=null",
    "thinker.tp=null",
    "talker.devices=null",
)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A plan of which the command line takes values back."""
    return make(inputs(tmp_path, set_values=SET, stage_overrides={}), HOST, TOYS)


def plan_of(made: Made) -> Plan:
    """The plan that there is."""
    assert made.plan is not None, made.diagnostics
    return made.plan


def words(what: str, made: Made) -> list[tuple[str, object, str]]:
    """What the layers say about a value."""
    record = record_of(made)
    assert record is not None
    story = explain_value(subject_of(what, record, TOYS), record, made, TOYS)
    assert story is not None
    winners = [word.value for word in story.words if word.verdict == "wins"]
    assert [story.value] == (winners or [None])
    return [(word.place, word.value, word.verdict) for word in story.words]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (
            "thinker.max_num_seqs",
            [
                ("--set thinker.max_num_seqs=null", None, "clears"),
                ("deploy_config", 4, "overridden"),
                ("default", 8, "wins"),
            ],
        ),
        (
            "thinker.tp",
            [
                ("--set thinker.tp=null", None, "clears"),
                ("strategy_config", 2, "overridden"),
                ("default", 1, "wins"),
            ],
        ),
        (
            "talker.devices",
            [
                ("automatic", "1 | 2", "wins"),
                ("--set talker.devices=null", None, "clears"),
                ("deploy_config", "0,1", "overridden"),
                ("default", None, "overridden"),
            ],
        ),
        (
            "thinker.default_sampling_params.stop_token_ids",
            [
                ("what the model does not let go of", (7,), "wins"),
                ("--set thinker.default_sampling_params.stop_token_ids=null", None, "clears"),
                ("deploy_config", (1,), "overridden"),
                ("default", (), "overridden"),
            ],
        ),
    ],
)
def test_explain_names_who_cleared_what(
    what: str, told: list[tuple[str, object, str]], made: Made
) -> None:
    """And what holds in its place: the default, a place, or the model's own word."""
    assert words(what, made) == told


def test_a_value_without_default_is_cleared_to_nothing(tmp_path: Path) -> None:
    """No word wins where there is none left."""
    made = make(inputs(tmp_path, stage_overrides={"thinker": {"env": None}}), HOST, TOYS)
    told = words("thinker.env.COLOUR", made)
    assert told[:2] == [("stage_overrides", None, "clears"), ("deploy_config", "red", "overridden")]


def test_a_null_is_counted_and_marked_as_a_change(made: Made) -> None:
    """By where it was said, like a value."""
    plan = plan_of(made)
    assert tally(plan).command_line == len(SET)
    text = plan_text(plan)
    assert "~ talker" in text
    assert "--set talker.devices=null" in text


def test_the_details_say_what_holds_and_since_when(made: Made) -> None:
    """The default where there is one, else that it was taken back."""
    text = details_text(plan_of(made))
    cleared = "--set thinker.max_num_seqs=null takes back 4 of deploy_config"
    assert "thinker.max_num_seqs = 8" in text
    assert f"default, since stage: {cleared}" in text
    assert "stage: --set talker.devices=null takes back 0,1 of deploy_config" in text


def test_a_field_of_the_pipeline_that_was_taken_back_is_told(tmp_path: Path) -> None:
    """With its place and what it took back."""
    folder = tmp_path / "model"
    folder.mkdir()
    lower = folder / "lower.yaml"
    lower.write_text("async_chunk: false\n", encoding="utf-8")
    upper = {"base_config": str(lower), "pipeline": "toy", "async_chunk": None, "cuda_mps": None}
    made = make(inputs(folder, deploy_config=upper, strategy_config=STRATEGY), HOST, TOYS)
    text = plan_text(plan_of(made))
    assert f"async_chunk is at its default (deploy_config takes back false of {lower}:1:14)" in text
    assert "cuda_mps is at its default (deploy_config)" in text


def test_before_there_is_a_plan_a_null_is_told_as_well(tmp_path: Path) -> None:
    """What was said is known although nothing stands yet."""
    said = (*SET, "thinker.dp=3", "talker.max_num_seqs=13")
    made = make(inputs(tmp_path, set_values=said, stage_overrides={}), HOST, TOYS)
    assert made.plan is None
    assert words("thinker.max_num_seqs", made)[0][2] == "clears"


def test_a_saved_plan_keeps_what_was_taken_back(made: Made, tmp_path: Path) -> None:
    """It is opened again, and tells the same."""
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan_of(made)), encoding="utf-8")
    again = open_saved(file, HOST, TOYS)
    assert plan_of(again) == made.plan
    assert words("thinker.max_num_seqs", again) == words("thinker.max_num_seqs", made)
    record = record_of(again)
    assert record is not None
    story = explain_value(subject_of("thinker.tp", record, TOYS), record, again, TOYS)
    assert story is not None
    assert "--set thinker.tp=null" in story_text(story)
