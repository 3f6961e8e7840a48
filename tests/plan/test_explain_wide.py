"""Values of the pipeline as a whole: what holds, where it came from, and what is not there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.inputs import PlanInputs, python_fields
from stagemesh.plan.explain_absent import instead_of
from stagemesh.plan.explain_value import ValueStory, explain_value, members_of
from stagemesh.plan.make import Made, make
from stagemesh.plan.render import plan_text
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.subject import record_of, subject_of
from stagemesh.plan.tally import effective_values
from stagemesh.spec.duplex import DuplexModel
from tests.plan.making import catalog, pipeline, solo, stage
from tests.plan.saving import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """What the model can be told about the edges that leave its first stage."""

    frames: int = 1
    """Handed over together."""


MODEL: Final = replace(
    pipeline(
        stage(0, "thinker", edge_options=Frames, produces_chunks=True),
        stage(1, "talker", final_output=True, final_output_type="audio"),
    ),
    duplex=DuplexModel(plugin="m:duplex"),
)
CATALOG: Final = catalog(MODEL)
ALONE: Final = catalog(solo(final_output=True, final_output_type="text"))
DEPLOY: Final = """\
pipeline: toy
session_mode: duplex
duplex_session: {max_sessions: 2}
weight_transfer_config: {backend: nccl}
connectors:
  shm: {name: SharedMemoryConnector, extra: {arena_bytes: 262144, frames: 5}}
edges:
- {from: 0, to: 1, window_size: 2}
stages:
- {stage_id: 0, output_connectors: {to_stage_1: shm}}
"""
LOWER: Final = """\
edges:
- {from: 0, to: 1, window_size: 3, max_inflight: 4}
connectors:
  shm: {extra: {frames: 3}}
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A plan to which two files have said something about everything, and a flag."""
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text("{}", encoding="utf-8")
    Path("lower.yaml").write_text(LOWER, encoding="utf-8")
    Path("deploy.yaml").write_text(f"base_config: lower.yaml\n{DEPLOY}", encoding="utf-8")
    return planned("deploy.yaml")


def planned(deploy: str | dict[str, object]) -> Made:
    """Plan the checkpoint here."""
    made = make(PlanInputs(model=".", deploy_config=deploy), HOST, CATALOG)
    assert made.plan is not None, made.diagnostics
    return made


def story(what: str, made: Made) -> ValueStory | None:
    """Ask for a value."""
    record = record_of(made)
    assert record is not None
    return explain_value(subject_of(what, record, CATALOG), record, made, CATALOG)


def words(what: str, made: Made) -> list[tuple[str, object]]:
    """Places and values of what the layers say."""
    found = story(what, made)
    assert found is not None
    return [(word.place, word.value) for word in found.words]


def below(what: str, made: Made) -> dict[str, object]:
    """What stands below a path."""
    record = record_of(made)
    assert record is not None
    found = members_of(subject_of(what, record, CATALOG), record, made)
    return {path: value.value for path, value in found.items()}


def instead(what: str, made: Made) -> str:
    """What is named instead of a value that is not there."""
    record = record_of(made)
    assert record is not None
    return instead_of(what, record, CATALOG)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("edges.0-1.connector", [("deploy.yaml:11:49", "shm"), ("default", None)]),
        ("edges.0-1.arena_bytes", [("deploy.yaml:7:59", 262144), ("default", 8 * 2**20)]),
        (
            "edges.thinker-talker.frames",
            [("deploy.yaml:7:75", 5), ("lower.yaml:4:25", 3), ("default", 1)],
        ),
        ("edges.0-1.giant_bytes", [("default", 2**30)]),
        (
            "edges.0-1.window_size",
            [("deploy.yaml:9:33", 2), ("lower.yaml:2:33", 3), ("default", None)],
        ),
        (
            "edges.0-1.max_inflight",
            [("deploy.yaml:9:3", None), ("lower.yaml:2:50", 4), ("default", None)],
        ),
        ("session_mode", [("deploy.yaml:3:15", "duplex"), ("default", None)]),
        ("duplex_session.max_sessions", [("deploy.yaml:4:32", 2), ("default", 1)]),
        ("duplex_session.warmup_frames", [("default", 0)]),
        ("launch.init_timeout", [("default", 600)]),
        ("connectors.shm.extra.arena_bytes", [("deploy.yaml:7:59", 262144)]),
        ("pipeline", [("deploy.yaml:2:11", "toy")]),
    ],
)
def test_every_value_has_a_place(what: str, told: list[tuple[str, object]], made: Made) -> None:
    """Also those that connectors hand to their edges, and what lists replaced as a whole."""
    assert words(what, made)[: len(told)] == told


def test_what_is_told_of_an_edge_names_its_owner(made: Made) -> None:
    """The model, the connector, or deploy files."""
    found = story("edges.0-1.frames", made)
    assert found is not None
    assert found.doc == "Handed over together."
    assert found.goes_to == "the model, where `thinker` hands over"
    assert story("edges.0-1.nonsense", made) is None


def test_what_holds_more_is_told_by_its_members(made: Made) -> None:
    """All edges, one of them, sessions, a connector, the start."""
    assert (
        below("edges", made)
        == below("edges.0-1", made)
        == {
            "edges.0-1.arena_bytes": 262144,
            "edges.0-1.connector": "shm",
            "edges.0-1.frames": 5,
            "edges.0-1.giant_bytes": 2**30,
            "edges.0-1.max_inflight": None,
            "edges.0-1.window_size": 2,
        }
    )
    assert below("connectors.shm", made) == {
        "connectors.shm.extra.arena_bytes": 262144,
        "connectors.shm.extra.frames": 5,
        "connectors.shm.name": "SharedMemoryConnector",
    }
    assert below("weight_transfer_config", made)["weight_transfer_config.backend"] == "nccl"
    assert below("duplex_session", made)["duplex_session.replica_policy"] == "legacy"
    assert below("launch", made)["launch.init_timeout"] == 600


def test_places_of_edges_are_kept_in_a_saved_plan(made: Made) -> None:
    """They are a part of it."""
    assert made.plan is not None
    Path("plan.json").write_text(to_json(made.plan), encoding="utf-8")
    again = open_saved(Path("plan.json"), HOST, CATALOG)
    assert again.plan == made.plan
    assert words("edges.0-1.frames", again) == words("edges.0-1.frames", made)
    assert "edges.0-1.frames" in json.loads(Path("plan.json").read_text("utf-8"))["values"]


def test_what_a_connector_says_is_counted_where_it_takes_effect(made: Made) -> None:
    """Not a second time below its own name; so the overview shows it once."""
    assert made.plan is not None
    counted = dict(effective_values(made.plan))
    assert "connectors.shm.extra.frames" in made.plan.values.keys() - counted.keys()
    assert counted["edges.0-1.frames"].value == 5
    shown = plan_text(made.plan)
    assert "edges.0-1.frames = 5 (deploy.yaml:7:75)" in shown
    assert "connectors.shm" not in shown


def test_a_limit_of_a_lower_list_is_replaced_with_it(made: Made) -> None:
    """The higher one says nothing about that edge; an edge without a word has no entry."""
    assert made.plan is not None
    said = "base_config: lower.yaml\npipeline: toy\nconnectors: null\nedges: []\n"
    Path("deploy.yaml").write_text(said, encoding="utf-8")
    assert words("edges.0-1.max_inflight", planned("deploy.yaml"))[:2] == [
        ("deploy.yaml:4:8", None),
        ("lower.yaml:2:50", 4),
    ]
    plan = planned({"pipeline": "toy", "edges": [{"from": 0, "to": 1}]}).plan
    assert plan is not None
    assert not [path for path in plan.values if path.startswith("edges.")]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("edges.0-2", "did you mean `edges.0-1`? below `edges`: `0-1`"),
        ("edges.0-1.Frames", "did you mean `edges.0-1.frames`? below `edges.0-1`: "),
        ("edges.thinker-talker.frame", "did you mean `edges.0-1.frames`?"),
        ("connectors.x", "below `connectors`: `shm`"),
        ("platforms", "it is about a file; what it leads to are values of stages"),
        ("max_num_seqs", "stages have it: `thinker.max_num_seqs`, `talker.max_num_seqs`"),
        ("thinker.env.FOO", "`thinker.env` has no members"),
        ("stages.thinker.env.FOO", "`thinker.env` has no members"),
        ("thinker.axes", "an axis is asked for by its name below that of a stage"),
        ("axes", "an axis is asked for by its name below that of a stage"),
        ("0.TP", "did you mean `thinker.tp`?"),
        ("thinker.zzzzzz", "none of the `"),
        ("THINKER.TP", "did you mean `thinker.tp`? stages of this plan: `thinker`, `talker`"),
        ("zzzzzz", "stages of this plan: `thinker`, `talker`"),
        ("thinker.boundary_ratio", "none of the `"),
    ],
)
def test_the_nearest_is_named_instead(what: str, told: str, made: Made) -> None:
    """Beside the value that was asked for, rather than somewhere else in the plan."""
    assert story(what, made) is None
    assert instead(what, made).startswith(told)


def test_a_pipeline_without_edges_sessions_and_connectors_says_so(tmp_path: Path) -> None:
    """Nothing is made up for what it has not."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    inputs = PlanInputs(model=str(tmp_path), deploy_config={"pipeline": "toy"})
    made = make(inputs, HOST, ALONE)
    record = record_of(made)
    assert record is not None
    told = {
        what: instead_of(what, record, ALONE)
        for what in ("edges", "connectors", "duplex_session.max_sessions")
    }
    assert told == {
        "edges": "the pipeline has one stage, and so no edge",
        "connectors": "no connector is named; what the edges have is below `edges`",
        "duplex_session.max_sessions": "sessions take turns here, which `session_mode` says",
    }
    for what in told:
        subject = subject_of(what, record, ALONE)
        assert explain_value(subject, record, made, ALONE) is None
    turn = explain_value(subject_of("session_mode", record, ALONE), record, made, ALONE)
    assert turn is not None
    assert turn.value == "turn"


def test_the_default_is_what_the_pipeline_can_have(tmp_path: Path) -> None:
    """A pipeline of one stage that makes no chunks has none, though others have by default."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    deploy = {"pipeline": "toy"}
    made = make(PlanInputs(model=str(tmp_path), deploy_config=deploy), HOST, ALONE)
    record = record_of(made)
    assert record is not None
    found = explain_value(subject_of("async_chunk", record, ALONE), record, made, ALONE)
    assert found is not None
    assert [(word.value, word.layer) for word in found.words] == [(False, "default")]


def test_without_a_plan_what_was_said_is_told(made: Made) -> None:
    """Of fields, connectors and the start; what would hold is not known yet."""
    assert made.loaded is not None
    alone = replace(made, plan=None)
    assert words("connectors.shm.name", alone) == [("deploy.yaml:7:15", "SharedMemoryConnector")]
    assert story("cuda_mps", alone) is None
    assert instead("thinker.max_num_seq", alone) == "did you mean `thinker.max_num_seqs`?"
    assert story("thinker.nonsense", alone) is None
    assert story("launch", alone) is None


@pytest.mark.parametrize(
    ("deploy", "fields", "told"),
    [
        ({}, {}, "pipeline"),
        ({"cuda_mps": True}, {}, "cuda_mps"),
        ({"session_mode": "turn"}, {}, "session_mode"),
        ({"weight_transfer_config": {"backend": "nccl"}}, {}, "weight_transfer_config.backend"),
        ({}, {"init_timeout": 7}, "launch.init_timeout"),
        ({"edges": [{"from": 0, "to": 1, "max_inflight": 4}]}, {}, "edges.0-1.max_inflight"),
        ({"cuda_mps": True, "stages": [{"stage_id": 0, "seed": 1}]}, {}, "thinker.seed"),
        (
            {"cuda_mps": True, "stages": [{"stage_id": 1, "tensor_parallel_size": 2}]},
            {},
            "talker.tp",
        ),
    ],
)
def test_the_closing_hint_explains_what_was_changed(
    deploy: Mapping[str, object], fields: Mapping[str, object], told: str, tmp_path: Path
) -> None:
    """Also a value of the whole pipeline: the value that is named is the one that was given."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    given = {"pipeline": "toy", **deploy}
    inputs = PlanInputs(model=str(tmp_path), deploy_config=given, fields=python_fields(fields))
    made = make(inputs, HOST, CATALOG)
    assert made.plan is not None, made.diagnostics
    assert f"`stagemesh explain {told}` with the same arguments shows why" in plan_text(made.plan)
    found = story(told, made)
    assert found is not None
    assert found.words[0].layer != "default"
