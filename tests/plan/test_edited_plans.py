"""A saved plan that was edited is refused, or means exactly what it says; it never crashes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagemesh.config.tree import path_text
from stagemesh.plan.save import from_json
from tests.examples import fewer
from tests.plan.saving import Json, opened, planned_in, refusal, tree_of

Steps: TypeAlias = tuple[str | int, ...]

# What may have another value, since all the rest follows from it or does not depend on it.
FREE: Final = re.compile(
    r"devices\.(count|memory_bytes)|active_stream_window|checkpoint\.path|.*\bvalues\..*"
    r"|stages\[\d\]\.(engine_args\.max_num_seqs|model_args\.pitch|env(\..*)?|axes\[\d\]\.label"
    r"|sampling\.(temperature|stop_token_ids.*)|replicas\[\d\]\.ranks\[\d\]\.device)"
    r"|edges\[0\]\.(options\..*|window_size|max_inflight)|launch\.(\w+_timeout|insecure_no_token)"
)
OTHER: Final[list[Json]] = [
    None,
    True,
    -1,
    0,
    2,
    10**30,
    0.5,
    "",
    "toy",
    "nope",
    [],
    [0],
    {},
    {"x": 1},
]


def leaves(tree: Json, path: Steps = ()) -> Iterator[Steps]:
    """Paths of all values, of collections too."""
    if path:
        yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from leaves(value, (*path, index))


def edited(tree: Json, path: Steps, value: Json) -> Json:
    """A copy with another value at `path`."""
    result = copy.deepcopy(tree)
    inside = result
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint."""
    return tmp_path_factory.mktemp("toy")


@pytest.fixture(scope="module")
def tree(folder: Path) -> Json:
    """The plan as it was saved."""
    return tree_of(planned_in(folder))


def test_the_plan_itself_is_opened(tree: Json, folder: Path) -> None:
    """Nothing is found in what nobody edited."""
    assert opened(tree, folder).plan == from_json(json.dumps(tree))


@settings(
    fewer(2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_value_may_be_edited(data: st.DataObject, tree: Json, folder: Path) -> None:
    """It is refused with diagnostics, unless it is a value that may differ."""
    path = data.draw(st.sampled_from(list(leaves(tree))))
    changed = edited(tree, path, data.draw(st.sampled_from(OTHER)))
    made = opened(changed, folder)
    if made.plan is None:
        assert made.diagnostics
    else:
        assert made.plan == from_json(json.dumps(changed))
        is_same = made.plan == from_json(json.dumps(tree))  # a member may be left to its default
        assert is_same or FREE.fullmatch(path_text(path)) or path[-1] == "values"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("stages", 0, "engine"), "nope", "PL020: unknown engine `nope`"),
        (("stages", 0, "engine"), "picture", "PL021: engine `picture` does not run the `llm_ar`"),
        (("stages", 0, "engine"), "none", "PL047: `stages[0].engine` is not what planning gives"),
        (("stages", 0, "policy"), "bogus", "PL047: `stages[0].policy` is not what planning gives"),
        (("stages", 1, "policy"), "hash", "PL047: `stages[1].policy` is not what planning gives"),
        (
            ("stages", 1, "axes", 0, "routing", "args", "policy"),
            "hush",
            "AX004: `talker.stage_repl",
        ),
        (("stages", 0, "axes", 0, "axis"), "tq", "AX001: unknown axis `tq` for `thinker`"),
        (("edges", 0, "connector"), "nope", "CF040: unknown connector `nope`"),
        (("edges", 0, "options", "arena_bytes"), "big", "CF012: `connectors.edge 0 -> 1.extra."),
        (("edges", 0, "payload_type"), "audio", "PL047: `edges[0].payload_type` is not what"),
        (("edges", 0, "bridge"), "os:system", "PL047: `edges[0].bridge` is not what planning"),
        (("edges",), [], "PL047: `edges` is not what planning gives now"),
        (("stages", 0, "replicas"), [], "PL018: `thinker` is not placed as `2` ranks can be"),
        (("stages", 1, "replicas", 0, "index"), 1, "PL047: `stages[1].replicas[0].index` is not"),
        (("stages", 0, "replicas", 0, "ranks", 1, "rank"), 0, "PL047: `stages[0].replicas[0].ran"),
        (("stages", 0, "replicas", 0, "ranks", 1, "device"), 9, "PL018: `thinker` is not placed"),
        (("stages", 0, "axes", 0, "groups"), [[0]], "PL047: `stages[0].axes[0].groups[0]` is not"),
        (("stages", 1, "input_sources"), [], "PL047: `stages[1].input_sources` is not what"),
        (("stages", 0, "owns_tokenizer"), False, "PL047: `stages[0].owns_tokenizer` is not what"),
        (("stages", 1, "loader"), "os:system", "PL047: `stages[1].loader` is not what planning"),
        (("stages", 0, "engine_args"), {"max_num_seqs": "many"}, "CF012: `thinker.max_num_seqs`"),
        (("stages", 0, "engine_args"), {"max_num_seqs": 1, "zzz": 1}, "CF010: unknown key `zzz`"),
        (("stages", 0, "engine_args"), {"max_num_seqs": 1001}, "PL023: engine `toy` of `thinker`"),
        (("stages", 0, "sampling", "nonsense"), 1, "PL024: stage `thinker` knows no parameter"),
        (("stages", 0, "sampling", "stop_token_ids"), [1], "PL047: `stages[0].sampling.stop_tok"),
        (("stages", 1, "model_args", "pitch"), "high", "CF012: `pitch` must be a number"),
        (("stages", 0, "env", "LD_PRELOAD"), "x.so", "CF015: `stages[0].env.LD_PRELOAD` cannot"),
        (("stages", 0, "env", "HF_TOKEN"), 5, "CF015: `stages[0].env.HF_TOKEN` looks like a"),
        (("not_runnable",), ["because"], "PL047: `not_runnable` is not what planning gives now"),
        (("checkpoint", "path"), "toy", "PL046: the checkpoint `toy` of the plan is no absolute"),
        (("checkpoint", "config_hash"), "0", "PL042: the checkpoint"),
        (("pipeline",), "gone", "MD012: unknown pipeline `gone`"),
        (("devices", "count"), 0, "CF013: `devices.count` must be `>= 1`, got `0`"),
        (("async_chunk",), False, "PL047: `edges[0].bridge` is not what planning gives now"),
    ],
)
def test_what_does_not_hold_is_refused(
    tree: Json, folder: Path, path: Steps, value: Json, message: str
) -> None:
    """One finding that names the place."""
    [found] = refusal(edited(tree, path, value), folder)
    assert found.startswith(message)


def test_a_plan_cannot_be_made_runnable_by_hand(tree: Json, folder: Path) -> None:
    """The reasons are found again, whatever the file says."""
    imaginary = edited(tree, ("devices",), {**tree["devices"], "imaginary": True})
    assert refusal(imaginary, folder) == ["PL047: `not_runnable` is not what planning gives now"]
    reasons = ["the `cpu` devices are imaginary"]
    assert opened(edited(imaginary, ("not_runnable",), reasons), folder).plan is not None


def test_another_legal_value_is_what_runs(tree: Json, folder: Path) -> None:
    """An engine argument is changed without planning again."""
    made = opened(edited(tree, ("stages", 0, "engine_args", "max_num_seqs"), 9), folder)
    assert made.plan is not None
    assert made.plan.stages[0].engine_args == {"max_num_seqs": 9}


def test_findings_stand_in_the_file_of_the_plan(tree: Json, folder: Path) -> None:
    """Not in files that nobody wrote."""
    made = opened(edited(tree, ("stages", 0, "engine"), "nope"), folder)
    assert [str(found.origin) for found in made.diagnostics] == [str(folder / "plan.json")]
