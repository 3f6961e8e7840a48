"""What deploy files say about edges: connectors, limits, and stages without chunks."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.values import Plan
from tests.config.deploying import CATALOG, HOST, Show

CONNECTORS = {
    "fast": {"name": "PipeConnector", "extra": {"slots": 8}},
    "slow": {"name": "PipeConnector", "extra": {"slots": 1}},
}


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Return a folder with a checkpoint; it is the current one."""
    return Show(tmp_path, monkeypatch)


def planned(show: Show, deploy: dict[str, object]) -> Plan:
    """Plan what must be well."""
    made = show.make(deploy)
    assert made.plan is not None, made.diagnostics
    return made.plan


def reopened(show: Show, plan: Plan) -> Plan:
    """Save a plan and open it again."""
    (show.folder / "plan.json").write_text(to_json(plan), encoding="utf-8")
    made = open_saved(Path("plan.json"), HOST, CATALOG)
    assert made.plan is not None, made.diagnostics
    return made.plan


def test_an_edge_takes_the_connector_that_its_entry_names(show: Show) -> None:
    """The others take the default one."""
    plan = planned(
        show,
        {"connectors": CONNECTORS, "edges": [{"from": "talker", "to": 2, "connector": "fast"}]},
    )
    assert {(edge.source, edge.target): edge.options["slots"] for edge in plan.edges} == {
        (0, 1): 2,
        (0, 3): 2,
        (1, 2): 8,
    }
    assert reopened(show, plan) == plan


def test_an_edge_cannot_name_two_connectors_nor_one_that_is_absent(show: Show) -> None:
    """The list of edges and both ends are three places for one decision."""
    edge = {"from": 0, "to": 1, "connector": "fast"}
    ends = [{"stage_id": 0, "output_connectors": {"to_stage_1": "slow"}}]
    found = show.make({"connectors": CONNECTORS, "edges": [edge], "stages": ends}).diagnostics
    assert [each.code for each in found] == ["PL032"]
    found = show.make({"edges": [edge]}).diagnostics
    assert [(each.code, each.message) for each in found] == [
        ("PL031", "connector `fast` is not declared")
    ]
    assert [each.help for each in found] == ["declare `fast` under `connectors:`"]
    made = show.make({"connectors": CONNECTORS, "edges": [{**edge, "connector": "fats"}]})
    told = next(each for each in made.diagnostics if each.code == "PL031")
    assert told.help is not None
    assert told.help.startswith("did you mean `fast`?")
    assert told.help.endswith("; or declare `fats` under `connectors:`")


def test_values_of_an_edge_are_told_at_themselves(show: Show) -> None:
    """Not at the entry that holds them."""
    text = "edges:\n  - {from: 0, to: 1,\n     window_size: 2,\n     max_inflight: 3}\n"
    show.write({"deploy.yaml": text})
    plan = show.make("deploy.yaml").plan
    assert plan is not None
    limits = [plan.values[f"edges.0-1.{name}"].origin for name in ("window_size", "max_inflight")]
    assert limits == ["deploy.yaml:3:19", "deploy.yaml:4:20"]
    show.write({"deploy.yaml": "edges:\n  - from: 0\n    to: 1\n    connector: fast\n"})
    (found,) = show.make("deploy.yaml").diagnostics
    assert (found.code, str(found.origin)) == ("PL031", "deploy.yaml:4:16")


def test_limits_of_an_edge_are_in_the_plan(show: Show) -> None:
    """The runtime keeps them."""
    plan = planned(show, {"edges": [{"from": 0, "to": 1, "window_size": -1, "max_inflight": 4}]})
    limits = [(edge.window_size, edge.max_inflight) for edge in plan.edges]
    assert limits == [(-1, 4), (None, None), (None, None)]
    assert not any(reason.startswith("edge") for reason in plan.not_runnable)
    assert reopened(show, plan) == plan


def test_stages_can_be_taken_out_of_handing_over_chunks(show: Show) -> None:
    """Where all ends agree, edges are whole; the saved plan stays the same."""
    plan = planned(show, {"stages": [{"stage_id": 0, "async_chunk": True}]})
    assert [edge.chunked for edge in plan.edges] == [True, True, True]
    off = [{"stage_id": stage_id, "async_chunk": False} for stage_id in range(4)]
    plan = planned(show, {"stages": off})
    assert plan.async_chunk
    assert [stage.async_chunk for stage in plan.stages] == [False] * 4
    assert [edge.chunked for edge in plan.edges] == [False, False, False]
    assert reopened(show, plan) == plan


def test_a_member_of_a_mapping_is_told_at_itself(show: Show) -> None:
    """Not at the first line of the mapping."""
    show.write({"deploy.yaml": "weight_transfer_config:\n  backend: nccl\n  packed: 3\n"})
    (found,) = show.make("deploy.yaml").diagnostics
    assert (found.code, str(found.origin)) == ("CF012", "deploy.yaml:3:11")
