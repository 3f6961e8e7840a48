"""The record of a saved plan has to be about what the plan has; what it says of places is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plan.saving import Json, opened, planned_in, refusal, tree_of


def _lose(record: Json) -> None:
    record.clear()


def _lose_a_field(record: Json) -> None:
    del record["dtype"]


def _change(record: Json) -> None:
    record["axes.tp.size"]["value"] = 4


def _take_back(record: Json) -> None:
    record["axes.tp.size"]["clears"] = True


def _add(record: Json) -> None:
    record["axes.pp.size"] = record["axes.tp.size"]


@pytest.mark.parametrize(
    ("edit", "path", "why"),
    [
        (_lose, "axes.tp.size", "it does not say where `2` comes from"),
        (_lose_a_field, "dtype", "it does not say where `float32` comes from"),
        (_change, "axes.tp.size", "it says `4`, and the plan has `2`"),
        (_take_back, "axes.tp.size", "it does not say where `2` comes from"),
        (_add, "axes.pp.size", "the plan does not have that axis"),
    ],
)
def test_the_record_of_another_plan_is_refused(
    edit: Callable[[Json], None], path: str, why: str, tmp_path: Path
) -> None:
    """Every axis, and every field that no engine takes, was given by somebody."""
    tree = tree_of(planned_in(tmp_path, "thinker.dtype=float32"))
    assert opened(tree, tmp_path).plan is not None
    edit(tree["stages"][0]["values"])
    [found] = opened(tree, tmp_path).diagnostics
    assert found.code == "PL047"
    assert found.message == f"`stages[0].values.{path}` is not what planning gives now"
    assert [note.message for note in found.notes] == [why]


def test_a_stage_that_is_another_is_told_once(tmp_path: Path) -> None:
    """Its record cannot be about it then."""
    tree = tree_of(planned_in(tmp_path))
    tree["stages"][0]["policy"] = "hash"
    tree["stages"][0]["values"] = {}
    tree["stages"][1]["values"] = {}
    assert refusal(tree, tmp_path) == [
        "PL047: `stages[0].policy` is not what planning gives now",
        "PL047: `stages[1].values.axes.stage_replica.size` is not what planning gives now",
    ]
