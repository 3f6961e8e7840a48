"""What was written into a saved plan by hand: it is told with the file of the plan as its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stagemesh.plan.explain_value import explain_value, members_of
from stagemesh.plan.subject import record_of, subject_of
from tests.plan.saving import CATALOG, Json, opened, planned_in, tree_of


def _argument(tree: Json) -> None:
    tree["stages"][0]["engine_args"]["max_num_seqs"] = 9


def _default(tree: Json) -> None:
    tree["stages"][1]["engine_args"]["max_num_seqs"] = 9


def _variable(tree: Json) -> None:
    tree["stages"][0]["env"] |= {"COLOUR": "blue", "SHAPE": "round"}


def _option(tree: Json) -> None:
    tree["stages"][1]["model_args"]["pitch"] = 3.0


def _idle(tree: Json) -> None:
    tree["stages"][0]["stage_args"]["dtype"] = "float16"


def _sampling(tree: Json) -> None:
    tree["stages"][0]["sampling"]["temperature"] = 0.25


def _edge(tree: Json) -> None:
    tree["edges"][0]["options"]["arena_bytes"] = 2**19


def _start(tree: Json) -> None:
    tree["launch"]["init_timeout"] = 9


def _devices(tree: Json) -> None:
    for replica, device in zip(tree["stages"][1]["replicas"], (3, 2), strict=True):
        replica["ranks"][0]["device"] = device


def _record(tree: Json) -> None:
    record = tree["stages"][0]["values"]
    for path in ("max_num_seqs", "default_sampling_params.temperature", "env.COLOUR"):
        del record[path]


def told(tree: Json, folder: Path, what: str) -> list[tuple[str, str, object, str]]:
    """Every word about a value of a saved plan."""
    made = opened(tree, folder)
    record = record_of(made)
    assert record is not None, made.diagnostics
    story = explain_value(subject_of(what, record, CATALOG), record, made, CATALOG)
    assert story is not None
    return [(word.layer, word.place, word.value, word.verdict) for word in story.words]


@pytest.mark.parametrize(
    ("edit", "what", "value", "below"),
    [
        (_argument, "thinker.max_num_seqs", 9, [4, 8]),
        (_default, "talker.max_num_seqs", 9, [8]),
        (_variable, "thinker.env.COLOUR", "blue", ["red", None]),
        (_variable, "thinker.env.SHAPE", "round", [None]),
        (_option, "talker.additional_config.pitch", 3.0, [2.0, 1.0]),
        (_idle, "thinker.dtype", "float16", ["float32", None]),
        (_sampling, "thinker.default_sampling_params.temperature", 0.25, [0.5, 0.0]),
        (_edge, "edges.0-1.arena_bytes", 2**19, [2**18, 2**23]),
        (_start, "init_timeout", 9, [600]),
        (_devices, "talker.devices", "3 | 2", ["0,1", None]),
        (_record, "thinker.max_num_seqs", 4, [8]),
        (_record, "thinker.env.COLOUR", "red", [None]),
    ],
)
def test_what_was_edited_has_the_saved_plan_as_its_place(
    edit: Callable[[Json], None], what: str, value: object, below: list[object], tmp_path: Path
) -> None:
    """Neither the model nor a default says it, and what is recorded is overridden."""
    tree = tree_of(planned_in(tmp_path, "thinker.dtype=float32"))
    edit(tree)
    first, *others = told(tree, tmp_path, what)
    assert first == ("saved plan", str(tmp_path / "plan.json"), value, "wins")
    assert [word[2:] for word in others] == [(each, "overridden") for each in below]


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("thinker.max_num_seqs", ("deploy file", "deploy_config", 4, "wins")),
        ("talker.max_num_seqs", ("default", "default", 8, "wins")),
        ("talker.devices", ("deploy file", "deploy_config", "0,1", "wins")),
        ("thinker.devices", ("placement", "automatic", "2,3", "wins")),
        ("thinker.tp", ("strategy file", "strategy_config", 2, "wins")),
        ("thinker.env.COLOUR", ("deploy file", "deploy_config", "red", "wins")),
        (
            "thinker.default_sampling_params.stop_token_ids",
            ("the model's pipeline", "what the model does not let go of", (1, 7), "wins"),
        ),
        ("pipeline", ("deploy file", "deploy_config", "toy", "wins")),
    ],
)
def test_what_nobody_edited_is_told_as_it_was_planned(
    what: str, word: tuple[str, str, object, str], tmp_path: Path
) -> None:
    """The file of the plan says nothing of its own then."""
    assert told(tree_of(planned_in(tmp_path)), tmp_path, what)[0] == word


def test_what_the_model_adds_to_is_not_what_was_edited(tmp_path: Path) -> None:
    """A list that holds more than what was given and what the model adds."""
    tree = tree_of(planned_in(tmp_path))
    tree["stages"][0]["sampling"]["stop_token_ids"] = [1, 9, 7]
    what = "thinker.default_sampling_params.stop_token_ids"
    assert told(tree, tmp_path, what)[0][0] == "saved plan"


def test_what_was_edited_is_listed(tmp_path: Path) -> None:
    """Above what it replaced; the others stay as they are."""
    tree = tree_of(planned_in(tmp_path))
    _argument(tree)
    made = opened(tree, tmp_path)
    record = record_of(made)
    assert record is not None
    listed = members_of(subject_of("thinker", record, CATALOG), record, made)
    value = listed["thinker.max_num_seqs"]
    assert (value.value, value.layer, value.origin) == (9, "saved", str(tmp_path / "plan.json"))
    assert [each.value for each in value.superseded] == [4]
    assert listed["thinker.env.COLOUR"].layer == "deploy"
