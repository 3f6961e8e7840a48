"""Values that no file gives, members with free names, and what to ask for instead."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.docs import field_docs
from stagemesh.config.fields import stage_fields
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.explain_absent import instead_of
from stagemesh.plan.explain_planned import OF_EDGES, OF_PLANS, OF_STAGES, explain_planned
from stagemesh.plan.explain_value import ValueStory, explain_value, members_of
from stagemesh.plan.make import Made, make
from stagemesh.plan.subject import record_of, subject_of
from stagemesh.plan.values import EdgePlan, Plan, StagePlan
from stagemesh.plan.wide_values import held_by_plan
from tests.plan.making import catalog, pipeline, stage
from tests.plan.saving import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """What the model can be told about the edges that leave its first stage."""

    frames: int = 1
    """Handed over together."""


MODEL: Final = pipeline(
    stage(0, "thinker", edge_options=Frames),
    stage(1, "talker", final_output=True, final_output_type="audio"),
)
CATALOG: Final = catalog(MODEL)
LOWER: Final = """\
pipeline: toy
connectors:
  shm: {name: SharedMemoryConnector, extra: {arena_bytes: 262144}}
  bare: {name: SharedMemoryConnector}
edges:
- {from: 0, to: 1, connector: shm}
stages:
- {stage_id: 0, env: {A: a, B: b}, num_replicas: 2}
"""
UPPER: Final = """\
base_config: lower.yaml
stages:
- {stage_id: 0, env: {B: null}}
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A plan in which an upper file takes something back."""
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text("{}", encoding="utf-8")
    Path("lower.yaml").write_text(LOWER, encoding="utf-8")
    Path("upper.yaml").write_text(UPPER, encoding="utf-8")
    made = make(PlanInputs(model=".", deploy_config="upper.yaml", devices=4), HOST, CATALOG)
    assert made.plan is not None
    return made


def story(what: str, made: Made) -> ValueStory | None:
    """Ask for a value as the command does."""
    record = record_of(made)
    assert record is not None
    subject = subject_of(what, record, CATALOG)
    found = explain_value(subject, record, made, CATALOG)
    return found or explain_planned(subject, record, made)


def words(what: str, made: Made) -> list[tuple[str, object, str]]:
    """Places, values and verdicts of what the layers say."""
    found = story(what, made)
    assert found is not None
    return [(word.place, word.value, word.verdict) for word in found.words]


# --- members with free names ----------------------------------------------------------------------


def test_a_member_that_was_taken_back_has_no_value(made: Made) -> None:
    """Rather than that of the whole mapping, and with the type of a member."""
    assert words("thinker.env.B", made) == [
        ("upper.yaml:3:26", None, "clears"),
        ("lower.yaml:8:32", "b", "overridden"),
        ("default", None, "wins"),
    ]
    found = story("thinker.env.B", made)
    assert found is not None
    assert (found.value, found.type) == (None, "text like `text`")
    assert story("thinker.env.X", made) is None


def test_options_of_a_connector_are_those_of_its_class(made: Made) -> None:
    """Given or not; a model's own for the edges stand among them."""
    assert words("connectors.shm.extra.arena_bytes", made) == [
        ("lower.yaml:3:59", 262144, "wins"),
        ("default", 8 * 2**20, "overridden"),
    ]
    assert words("connectors.bare.extra.giant_bytes", made) == [("default", 2**30, "wins")]
    assert words("connectors.bare.extra.frames", made) == [("default", 1, "wins")]
    found = story("connectors.bare.extra", made)
    assert found is not None
    assert (found.value, found.goes_to) == ({}, "the edges that name the connector")
    assert found.doc == "Options of that class: `arena_bytes`, `giant_bytes`."
    for nothing in ("connectors.bare.extra.none", "connectors.none.extra", "connectors.bare.none"):
        assert story(nothing, made) is None


@pytest.mark.parametrize("taken_back", ["connectors: null", "connectors: {shm: null}"])
def test_a_connector_that_was_taken_back_has_no_options(taken_back: str, tmp_path: Path) -> None:
    """Those that a lower file gives it are told with what takes them back."""
    lower = "connectors:\n  shm: {name: SharedMemoryConnector, extra: {arena_bytes: 262144}}\n"
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "lower.yaml").write_text(f"pipeline: toy\n{lower}", encoding="utf-8")
    upper = tmp_path / "upper.yaml"
    upper.write_text(f"base_config: lower.yaml\n{taken_back}\n", encoding="utf-8")
    made = make(PlanInputs(model=str(tmp_path), deploy_config=upper), HOST, CATALOG)
    assert made.plan is not None
    path = "connectors.shm.extra"
    assert [(value, verdict) for _, value, verdict in words(f"{path}.arena_bytes", made)] == [
        (None, "clears"),
        (262144, "overridden"),
        (None, "wins"),
    ]
    assert story(path, made) is None
    assert story(f"{path}.giant_bytes", made) is None


def test_options_of_a_connector_are_known_without_a_plan(made: Made) -> None:
    """What a file says is there before anything is placed."""
    assert made.loaded is not None
    unplanned = Made(plan=None, diagnostics=(), documents=(), loaded=made.loaded)
    assert words("connectors.bare.extra.frames", unplanned) == [("default", 1, "wins")]
    assert story("thinker.world_size", unplanned) is None


# --- what the plan decides ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("thinker.world_size", 1),
        ("0.policy", "round_robin"),
        ("thinker.replicas.1.ranks.0.device", 1),
        ("talker.input_sources", (0,)),
        ("talker.final_output_type", "audio"),
        ("thinker.setup.recovery.max_restarts", 3),
        ("thinker.setup.kernels.attention", {}),
        ("thinker.engine_args.max_num_seqs", 8),
        ("edges.0-1.payload_type", "text"),
        ("edges.thinker-talker.chunked", False),
        ("session.mode", "turn"),
        ("devices.count", 4),
        ("version", 1),
    ],
)
def test_a_value_that_no_file_gives_says_what_it_follows_from(
    what: str, value: object, made: Made
) -> None:
    """By its path in a saved plan; its text is that of the field."""
    found = story(what, made)
    assert found is not None
    assert (found.value, found.topic) == (value, "")
    assert found.doc
    [word] = found.words
    assert word.verdict == "wins"
    assert word.place.startswith("follows from ")


@pytest.mark.parametrize(
    "what",
    [
        "thinker.setup.none",
        "thinker.replicas.9",
        "thinker.world_size.x",
        "edges.0-1",
        "edges.0-1.x",
    ],
)
def test_nothing_is_made_up(what: str, made: Made) -> None:
    """Neither below a value nor beside it."""
    assert story(what, made) is None


def test_every_value_of_a_plan_can_be_asked_for(made: Made) -> None:
    """It is a field of a file, holds such values, or says what it follows from."""
    assert made.plan is not None
    record = record_of(made)
    assert record is not None
    fields = stage_fields(CATALOG)
    shown = {"axes", "values"}
    for name in (item.name for item in dataclasses.fields(StagePlan)):
        assert (name in OF_STAGES) != (name in {*fields, *shown}), name
    edge = {"connector", "window_size", "max_inflight"}
    for name in (item.name for item in dataclasses.fields(EdgePlan)):
        assert (name in OF_EDGES) != (name in edge), name
    wide = {path.partition(".")[0] for path in held_by_plan(made.plan)} | {"stages", "values"}
    for name in (item.name for item in dataclasses.fields(Plan)):
        assert (name in OF_PLANS) != (name in wide), name
    kinds = ((StagePlan, OF_STAGES), (EdgePlan, OF_EDGES), (Plan, OF_PLANS))
    assert all(set(sources) <= set(field_docs(kind)) for kind, sources in kinds)
    assert members_of(subject_of("stages", record, CATALOG), record, made)


# --- what to ask for instead ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("thinker.routing", "it stands at `thinker.dp.routing`, `thinker.stage_replica.routing`"),
        ("thinker.window_size", "it stands at `edges.0-1.window_size`"),
        ("window_size", "it stands at `edges.0-1.window_size`"),
        ("thinker.max_sessions", "`max_sessions` is a field of `duplex_session` in deploy files"),
        ("max_sessions", "`max_sessions` is a field of `duplex_session` in deploy files"),
        ("routing", "stages have it: `thinker.dp.routing`"),
        ("thinker.world_siz", "did you mean `thinker.world_size`?"),
        ("thinker.values", "a value is asked for by its path"),
        ("thinker.nonsense", "none of the `"),
    ],
)
def test_a_value_of_the_same_name_is_named(what: str, told: str, made: Made) -> None:
    """In the stage, on edges, or in a section that this pipeline does not have."""
    assert story(what, made) is None
    record = record_of(made)
    assert record is not None
    assert instead_of(what, record, CATALOG).startswith(told)
