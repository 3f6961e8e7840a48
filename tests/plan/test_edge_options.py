"""What the model can be told about an edge: typed, checked against the edges, and restated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import Made, make
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from tests.plan.making import catalog, pipeline, stage
from tests.plan.saving import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Options of the edges that leave `a`."""

    frames: int = 25
    """Refused when it is 13."""
    ramp: tuple[int, ...] = ()
    """Sizes of the first chunks."""

    def __post_init__(self) -> None:
        """Refuse what a type cannot."""
        if self.frames == 13:
            message = "`frames` is unlucky"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Options of the edges that leave `b`."""

    frames: str = "all"
    """Another type than that of `a`."""
    loud: bool = False
    """Something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """Options of the edges that leave the last stage: there are none."""

    unheard: int = 0
    """Nothing."""


MODEL = pipeline(
    stage(0, "a", edge_options=Codec),
    stage(1, "b", edge_options=Wave),
    stage(2, "c", final_output=True, final_output_type="text", edge_options=Last),
)
CATALOG = catalog(MODEL)


def made(folder: Path, extra: Mapping[str, object], carries: Mapping[int, int]) -> Made:
    """Plan with one connector that carries the edges from some stages to others."""
    (folder / "config.json").write_text("{}", encoding="utf-8")
    deploy = {
        "pipeline": "toy",
        "connectors": {"shm": {"name": "SharedMemoryConnector", "extra": extra}},
        "stages": [
            {"stage_id": source, "output_connectors": {f"to_stage_{target}": "shm"}}
            for source, target in carries.items()
        ],
    }
    return make(PlanInputs(model=str(folder), deploy_config=deploy), HOST, CATALOG)


def told(found: Made) -> list[str]:
    """Codes and messages."""
    return [f"{each.code}: {each.message}" for each in found.diagnostics]


def test_an_edge_has_the_options_of_its_producer(tmp_path: Path) -> None:
    """Given ones and defaults; another edge keeps its own."""
    found = made(tmp_path, {"frames": 15, "ramp": [1, 4]}, {0: 1})
    assert found.plan is not None, told(found)
    assert [edge.model_options for edge in found.plan.edges] == [
        {"frames": 15, "ramp": (1, 4)},
        {"frames": "all", "loud": False},
    ]


def test_a_connector_of_two_edges_gives_each_what_it_has(tmp_path: Path) -> None:
    """As far as its type goes: `frames` is another one on the second edge."""
    found = made(tmp_path, {"loud": True}, {0: 1, 1: 2})
    assert found.plan is not None, told(found)
    assert found.plan.edges[1].model_options == {"frames": "all", "loud": True}
    found = made(tmp_path, {"frames": 15}, {0: 1, 1: 2})
    assert told(found) == ["CF012: `frames` must be text, got `15`"]


def test_an_option_of_edges_that_the_connector_does_not_carry_is_refused(tmp_path: Path) -> None:
    """It would be lost; the help says whose edges have it, or what these have."""
    found = made(tmp_path, {"loud": True}, {0: 1})
    assert told(found) == ["MD026: connector `shm` carries no edge that has a `loud`"]
    assert found.diagnostics[0].help == (
        "edges out of `b` have it: write it in the connector that carries those"
    )
    [nobodys] = made(tmp_path, {"unheard": 1}, {0: 1}).diagnostics
    assert nobodys.help == "leave it out: no edge of this pipeline has it"
    assert "loud" in str(found.diagnostics[0].origin and found.diagnostics[0].origin.path)


def test_a_connector_without_edges_is_told_once(tmp_path: Path) -> None:
    """Its options are the same mistake."""
    assert told(made(tmp_path, {"loud": True}, {})) == ["PL034: connector `shm` carries no edge"]


def test_the_models_own_refusal_is_no_traceback(tmp_path: Path) -> None:
    """The options type may say no."""
    assert told(made(tmp_path, {"frames": 13}, {0: 1})) == [
        "PL025: an option of the edges of `a` is refused: `frames` is unlucky"
    ]


def test_both_ends_must_mean_the_same_options(tmp_path: Path) -> None:
    """Two connectors of one kind differ when the model's options do."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    shared = {"name": "SharedMemoryConnector"}
    deploy = {
        "pipeline": "toy",
        "connectors": {
            "here": {**shared, "extra": {"frames": 15}},
            "there": {**shared, "extra": {"frames": 16}},
        },
        "stages": [
            {"stage_id": 0, "output_connectors": {"to_stage_1": "here"}},
            {"stage_id": 1, "input_connectors": {"from_stage_0": "there"}},
        ],
    }
    found = make(PlanInputs(model=str(tmp_path), deploy_config=deploy), HOST, CATALOG)
    assert told(found)[0] == "PL032: edge 0 -> 1 names `here` at one end and `there` at the other"


@pytest.mark.parametrize("extra", [{}, {"frames": 15, "ramp": [1, 4, 15]}])
def test_a_saved_plan_keeps_them(tmp_path: Path, extra: Mapping[str, object]) -> None:
    """It is planned again from what it says, and comes out the same."""
    found = made(tmp_path, extra, {0: 1})
    assert found.plan is not None, told(found)
    file = tmp_path / "plan.json"
    file.write_text(to_json(found.plan), encoding="utf-8")
    assert open_saved(file, HOST, CATALOG) == Made(plan=found.plan, diagnostics=(), documents=())
    file.write_text(to_json(found.plan).replace('"loud": false', '"loud": 3'), encoding="utf-8")
    assert [each.code for each in open_saved(file, HOST, CATALOG).diagnostics] == ["CF012"]


def test_options_that_nothing_acts_on_make_a_plan_not_runnable(tmp_path: Path) -> None:
    """Bridges do not take them yet."""
    found = made(tmp_path, {}, {0: 1})
    assert found.plan is not None
    assert "edge 0 -> 1: nothing acts on `frames` yet" in found.plan.not_runnable
