"""One value of a plan: what a path means, what the layers say, what it needs, where it goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.explain_edited import SAVED
from stagemesh.plan.explain_value import _LAYERS, ValueStory, explain_value, members_of, story_text
from stagemesh.plan.make import Made, make
from stagemesh.plan.subject import Subject, record_of, subject_of
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.origin import Layer
from stagemesh.spec.pipeline import CheckpointConfigs, PipelineConfig
from tests.plan.making import catalog
from tests.plan.saving import DEPLOY, HOST, MODEL, STRATEGY

OVERRIDES: Final = {"thinker": {"max_num_seqs": 6, "dtype": "float32"}}


def facts(_configs: CheckpointConfigs) -> dict[str, StageFacts]:
    """What the checkpoint says about the thinker."""
    return {
        "thinker": StageFacts(
            num_attention_heads=12, num_kv_heads=12, hidden_size=24, intermediate_size=48
        )
    }


STRATEGIES: Final = cast("Mapping[str, object]", STRATEGY["strategies"])
TOY: Final[PipelineConfig] = replace(MODEL, facts=facts)
TOYS: Final = catalog(TOY)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A plan to which files, the command line and the model have said something."""
    return make(inputs(tmp_path), HOST, TOYS)


def inputs(folder: Path, **more: object) -> PlanInputs:
    """A checkpoint in `folder`, and all that is said about it."""
    (folder / "config.json").write_text("{}", encoding="utf-8")
    said = {"deploy_config": DEPLOY, "strategy_config": STRATEGY, "stage_overrides": OVERRIDES}
    return PlanInputs(model=str(folder), **{**said, **more})  # type: ignore[arg-type]


def story(what: str, made: Made) -> ValueStory:
    """The story of a value that there is."""
    found = asked(what, made)
    assert found is not None
    return found


def asked(what: str, made: Made) -> ValueStory | None:
    """Ask for a value."""
    record = record_of(made)
    assert record is not None
    return explain_value(subject_of(what, record, TOYS), record, made, TOYS)


def words(what: str, made: Made) -> list[tuple[str, str, object, str]]:
    """What the layers say about a value."""
    return [(word.layer, word.place, word.value, word.verdict) for word in story(what, made).words]


@pytest.mark.parametrize(
    ("what", "stage", "path"),
    [
        ("thinker", "thinker", ""),
        ("1", "talker", ""),
        ("thinker.tp", "thinker", "axes.tp.size"),
        ("0.tp.size", "thinker", "axes.tp.size"),
        ("thinker.axes.tp.size", "thinker", "axes.tp.size"),
        ("thinker.tensor_parallel_size", "thinker", "axes.tp.size"),
        ("thinker.enable_expert_parallel", "thinker", "axes.ep.size"),
        ("talker.stage_replica.l1_owner", "talker", "axes.stage_replica.owner"),
        ("talker.additional_config.pitch", "talker", "additional_config.pitch"),
        ("async_chunk", None, "async_chunk"),
        ("stages", None, "stages"),
        ("stages.thinker.tp", "thinker", "axes.tp.size"),
        ("thinker.axes", "thinker", "axes"),
        ("edges.0-1.arena_bytes", None, "edges.0-1.arena_bytes"),
        ("edges.thinker-talker", None, "edges.0-1"),
        ("edges.thinker-nobody", None, "edges.thinker-nobody"),
        ("api_server_count", None, "launch.api_server_count"),
        ("nobody.tp", None, "nobody.tp"),
    ],
)
def test_a_path_means_a_value(what: str, stage: str | None, path: str, made: Made) -> None:
    """Stages by name or number, axes by name or by the fields of deploy files."""
    record = record_of(made)
    assert record is not None
    assert subject_of(what, record, TOYS) == Subject(stage=stage, path=path)


def test_every_layer_has_its_word(made: Made) -> None:
    """Highest first; the field's own default comes last."""
    assert words("thinker.max_num_seqs", made) == [
        ("flag for the stage", "stage_overrides", 6, "wins"),
        ("deploy file", "deploy_config", 4, "overridden"),
        ("default", "default", 8, "overridden"),
    ]
    assert words("thinker.tp", made) == [
        ("strategy file", "strategy_config", 2, "wins"),
        ("default", "default", 1, "overridden"),
    ]


def test_every_layer_has_a_name() -> None:
    """None would be shown as code has it."""
    assert set(_LAYERS) == {SAVED, *(layer.name.lower() for layer in Layer)}


def test_what_nobody_gives_is_a_default(made: Made) -> None:
    """Of the engine, of the model, of an axis that is not there."""
    assert words("talker.max_num_seqs", made) == [("default", "default", 8, "wins")]
    assert words("talker.pp", made) == [("default", "default", 1, "wins")]
    assert story("talker.pp", made).value == 1


def test_what_the_model_does_not_let_go_of_wins(made: Made) -> None:
    """Whatever a file says."""
    assert words("thinker.default_sampling_params.stop_token_ids", made)[:2] == [
        ("the model's pipeline", "what the model does not let go of", (1, 7), "wins"),
        ("deploy file", "deploy_config", (1,), "overridden"),
    ]


def test_devices_that_were_chosen_are_told(made: Made) -> None:
    """Where nobody lists them."""
    assert words("thinker.devices", made)[0] == ("placement", "automatic", "2,3", "wins")
    assert words("talker.devices", made)[0][1:] == ("deploy_config", "0,1", "wins")


@pytest.mark.parametrize(
    ("what", "goes_to"),
    [
        ("thinker.max_num_seqs", "engine `toy`, as its argument `max_num_seqs`"),
        ("thinker.dtype", "nothing yet: engine `toy` does not act on it"),
        ("thinker.tp", "engine `toy`, which executes the axis"),
        ("thinker.pp", "the plan alone: engine `toy` does not execute the axis yet"),
        (
            "thinker.stage_pp",
            "the runtime, which bounds what is in flight on every edge that leaves the stage",
        ),
        (
            "talker.stage_replica",
            "the runtime, which starts as many copies and chooses between them",
        ),
        ("thinker.env.COLOUR", "the environment of the stage's processes"),
        ("talker.additional_config.pitch", "the model"),
        ("thinker.default_sampling_params.temperature", "every request that does not give it"),
        ("thinker.engine", "the choice of the engine"),
        ("thinker.restart", "whoever starts the processes of the stage"),
        ("thinker.colocate_with", "the processes of the stage, which are those of its host"),
        ("thinker.seed", "nothing yet: engine `toy` does not act on it"),
        ("async_chunk", "every stage"),
        ("edges.0-1.arena_bytes", "connector `shared_memory` on this edge"),
        ("edges.0-1.max_inflight", "both stages of the edge"),
        ("connectors.shm.name", "the edges that name the connector"),
        ("api_server_count", "this start"),
        ("session_mode", "the sessions of the pipeline"),
    ],
)
def test_it_is_told_who_acts_on_a_value(what: str, goes_to: str, made: Made) -> None:
    """The engine, the runtime, the model, or nobody yet."""
    assert story(what, made).goes_to == goes_to


def test_an_axis_says_which_sizes_fit(made: Made) -> None:
    """By its own rule on the checkpoint's facts; nothing where everything fits."""
    assert (
        story("thinker.tp", made).needs[-1]
        == "sizes up to 64 that fit `thinker`: 1, 2, 3, 4, 6, 12"
    )
    assert story("talker.stage_replica", made).needs == ()
    assert story("talker.stage_replica.routing", made).needs == ()


def test_a_size_that_follows_is_told(tmp_path: Path) -> None:
    """From the sizes of the other axes."""
    stack = [{"axis": "tp", "size": 2}, {"axis": "ep", "size": 2}]
    strategy = {"strategies": {**STRATEGIES, "thinker": stack}}
    made = make(inputs(tmp_path, strategy_config=strategy), HOST, TOYS)
    assert made.plan is not None
    assert story("thinker.ep", made).needs[-1] == "it follows from the other axes here: 2"


def test_a_size_that_follows_comes_from_where_its_axis_is_switched_on(tmp_path: Path) -> None:
    """Nobody gives it, and yet no default holds."""
    overrides = {"thinker": {"enable_expert_parallel": True}}
    made = make(inputs(tmp_path, stage_overrides=overrides), HOST, TOYS)
    assert made.plan is not None
    assert words("thinker.ep", made) == [
        ("flag for the stage", "stage_overrides", 2, "wins"),
        ("default", "default", 1, "overridden"),
    ]


def test_a_size_that_cannot_be_checked_is_not_told_to_fit(tmp_path: Path) -> None:
    """The checkpoint does not give the number of layers."""
    strategy = {"strategies": {**STRATEGIES, "thinker": [{"axis": "pp", "size": 2}]}}
    made = make(inputs(tmp_path, strategy_config=strategy), HOST, TOYS)
    assert story("thinker.pp", made).needs == ("at least as many layers as its size",)


@pytest.mark.parametrize(
    "what",
    [
        "nonsense",
        "thinker.nonsense",
        "max_num_seqs",
        "thinker.pipeline",
        "thinker.ring_degree",
        "thinker.default_sampling_params.nonsense",
        "thinker.env.FOO",
        "connectors.x",
        "edges",
        "edges.0-1",
        "edges.0-1.nonsense",
        "edges.1-2.max_inflight",
        "launch",
        "platforms",
        "base_config",
        "stages",
        "duplex_session.max_sessions",
    ],
)
def test_what_is_no_value_has_no_story(what: str, made: Made) -> None:
    """Fields of stages need a stage, and a stage has the fields of its kind alone."""
    assert asked(what, made) is None


def test_members_are_the_values_below_a_path(made: Made) -> None:
    """Of a stage all, of a mapping its own."""
    record = record_of(made)
    assert record is not None
    below = members_of(Subject(stage="thinker", path="default_sampling_params"), record, made)
    assert list(below) == [
        "thinker.default_sampling_params.stop_token_ids",
        "thinker.default_sampling_params.temperature",
    ]
    everything = members_of(Subject(stage="talker", path=""), record, made)
    assert {"talker.stage_replica", "talker.devices", "talker.max_num_seqs"} <= set(everything)
    assert set(everything) | set(
        members_of(Subject(stage="thinker", path=""), record, made)
    ) == set(members_of(Subject(stage=None, path="stages"), record, made))
    assert members_of(Subject(stage="talker", path="devices"), record, made) == {}


def test_paths_are_listed_as_people_write_them(made: Made) -> None:
    """For suggestions."""
    record = record_of(made)
    assert record is not None
    assert {"thinker", "thinker.tp", "talker.stage_replica.routing", "pipeline"} <= set(
        record.paths
    )


def test_what_was_said_is_known_before_there_is_a_plan(tmp_path: Path) -> None:
    """A layout that does not fit is the one that needs explaining."""
    strategy = {"strategies": {"thinker": [{"axis": "tp", "size": 5}]}}
    made = make(inputs(tmp_path, strategy_config=strategy), HOST, TOYS)
    assert made.plan is None
    assert words("0.tp", made)[0] == ("strategy file", "strategy_config", 5, "wins")
    assert story("thinker.tp", made).needs[-1].endswith(": 1, 2, 3, 4, 6, 12")
    assert [word[2] for word in words("thinker.max_num_seqs", made)] == [6, 4]
    assert asked("thinker.ring_degree", made) is None
    assert asked("session_mode", made) is None


def test_a_value_taken_back_is_not_told_without_a_plan(tmp_path: Path) -> None:
    """What holds instead is the default of an engine that is not chosen yet."""
    strategy = {"strategies": {"thinker": [{"axis": "tp", "size": 5}]}}
    cleared = {"thinker": {"max_num_seqs": None}}
    given = inputs(tmp_path, strategy_config=strategy, stage_overrides=cleared)
    made = make(given, HOST, TOYS)
    assert [word[2:] for word in words("thinker.max_num_seqs", made)] == [
        (None, "clears"),
        (4, "overridden"),
    ]
    assert story_text(story("thinker.max_num_seqs", made)).startswith("thinker.max_num_seqs   (")


def test_nothing_is_known_where_nothing_could_be_read(tmp_path: Path) -> None:
    """Neither of a missing checkpoint nor of a wrong file."""
    assert record_of(make(PlanInputs(model=str(tmp_path)), HOST, TOYS)) is None
    assert record_of(Made(plan=None, diagnostics=(), documents=())) is None


def test_a_plan_without_its_input_still_tells_where_values_come_from(made: Made) -> None:
    """Only what has to be asked of the checkpoint is missing."""
    alone = replace(made, loaded=None)
    assert words("thinker.tp", alone) == words("thinker.tp", made)
    assert len(story("thinker.tp", alone).needs) == len(story("thinker.tp", made).needs) - 1


def test_a_story_is_shown(made: Made) -> None:
    """What it is, who said what, what it needs and who acts on it."""
    assert (
        story_text(story("thinker.max_num_seqs", made))
        == """\
thinker.max_num_seqs = 6   (whole number)

Refused above 1000.

layer               place            value
flag for the stage  stage_overrides  6      wins
deploy file         deploy_config    4      overridden
default             default          8      overridden

goes to  engine `toy`, as its argument `max_num_seqs`
"""
    )
    assert json.dumps(
        [story("thinker.tp", made).topic, story("thinker.env.COLOUR", made).topic]
    ) == ('["axis tp", "env.COLOUR"]')
