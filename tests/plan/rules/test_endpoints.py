"""Connectors over the network: their keys, their addresses, and edges that name them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

import tests.plan.rules.toys as toys_module
from stagemesh.config.catalog import Catalog
from stagemesh.connectors.in_process import CONNECTOR as PROCESS
from stagemesh.connectors.mooncake_store import CONNECTOR, MooncakeStoreOptions
from stagemesh.connectors.tcp import CONNECTOR as STREAM
from stagemesh.spec.connector import Reach
from stagemesh.spec.pipeline import PipelineConfig
from tests.plan.making import catalog
from tests.plan.rules.toys import TWO, Toy

OUT: Final = {"stage_id": 0, "output_connectors": {"to_stage_1": "net"}}


def with_store(*pipelines: PipelineConfig) -> Catalog:
    """The toy catalog and what else carries edges."""
    base = catalog(*pipelines)
    more = {name: spec for spec in (CONNECTOR, PROCESS, STREAM) for name in spec.config_names}
    return replace(base, connectors={**base.connectors, **more})


@pytest.fixture
def toy(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """Two stages, and the store among the connectors."""
    monkeypatch.setattr(toys_module, "catalog", with_store)
    return replace(toy, model=TWO)


def store(name: str = "MooncakeStoreConnector", **extra: object) -> dict[str, Any]:
    """A deploy file whose only edge goes through a store."""
    return {"connectors": {"net": {"name": name, "extra": extra}}, "stages": [OUT]}


def test_the_store_reaches_other_hosts() -> None:
    """Its defaults are the store's own."""
    assert CONNECTOR.reach is Reach.NETWORK
    assert MooncakeStoreOptions() == MooncakeStoreOptions(
        host="127.0.0.1",
        metadata_server="http://127.0.0.1:8080/metadata",
        master="127.0.0.1:50051",
        segment=512 * 2**20,
        localbuf=64 * 2**20,
        proto="tcp",
    )


@pytest.mark.parametrize("name", ["MooncakeStoreConnector", "MooncakeConnector"])
def test_an_edge_over_the_store_is_planned(toy: Toy, name: str) -> None:
    """Under both names; the plan can be run."""
    plan = toy.plan(store(name, host="10.0.0.1", master="10.0.0.1:50051", proto="rdma"))
    [edge] = plan.edges
    assert (edge.connector, edge.options["proto"]) == ("mooncake_store", "rdma")
    assert plan.not_runnable == ()
    toy.keeps(plan)


def test_what_carries_within_a_process_is_run_where_two_stages_share_one(toy: Toy) -> None:
    """Nowhere else does it lead to anybody."""
    shared = {"colocate_with": "s0"}
    plan = toy.plan({**store("InProcessConnector"), **shared})
    assert [edge.connector for edge in plan.edges] == ["in_process"]
    assert plan.not_runnable == ()
    toy.keeps(plan)
    assert [each.partition(":")[0] for each in toy.found(store("InProcessConnector"))] == ["PL145"]


def test_what_carries_over_streams_is_run(toy: Toy) -> None:
    """It needs nothing that two stages do not have."""
    plan = toy.plan(store("TcpConnector", window_bytes=1_000_000))
    assert [edge.options["window_bytes"] for edge in plan.edges] == [1_000_000]
    assert plan.not_runnable == ()
    toy.keeps(plan)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"segment": 0}, "CF013: `connectors.net.extra.segment` must be `>= 16777216`, got `0`"),
        ({"segment": "512MB"}, "CF012: `connectors.net.extra.segment` must be a whole number"),
        ({"proto": "udp"}, "CF013: `connectors.net.extra.proto` does not take `udp`"),
        ({"metadata": "x"}, "CF010: unknown key `metadata` in `connectors.net.extra`"),
    ],
)
def test_keys_of_the_store_are_typed(toy: Toy, extra: dict[str, Any], message: str) -> None:
    """Bytes are whole numbers, protocols are two."""
    [found] = toy.found(store(**extra))
    assert found.startswith(message)


def test_shared_memory_takes_no_keys_of_the_store(toy: Toy) -> None:
    """All payloads use shared memory."""
    [found] = toy.found(store("SharedMemoryConnector", host="10.0.0.1"))
    assert found == "CF010: unknown key `host` in `connectors.net.extra`"


@pytest.mark.parametrize(
    "master",
    ["h:0", "h:65536", "h:99999", "h:port", "", ":50051", "a b:1", "h:1:2", "http://", "[::1"],
)
def test_an_address_has_a_host_and_a_port_in_range(toy: Toy, master: str) -> None:
    """The note says which option it is."""
    found = toy.one(store(master=master))
    assert (found.code, found.message) == ("PL116", f"`{master}` is no address")
    assert [note.message for note in found.notes] == ["it is `connectors.net.extra.master`"]


@pytest.mark.parametrize("master", ["h", "h:1", "h:65535", "[::1]:50051", "etcd://h:2379", "a.b:7"])
def test_addresses_of_all_forms_are_taken(toy: Toy, master: str) -> None:
    """A name alone is found in another way."""
    assert toy.found(store(master=master)) == []


def test_two_services_have_two_addresses(toy: Toy) -> None:
    """In one connector or in several; connectors of one class share their services."""
    found = toy.one(store(master="H:8080", metadata_server="http://h:8080/metadata"))
    assert (found.code, found.message) == ("PL117", "two services have the address `H:8080`")
    assert [note.message for note in found.notes] == [
        "it is `connectors.net.extra.metadata_server`",
        "it is `connectors.net.extra.master`",
    ]
    deploy = store()
    deploy["connectors"]["other"] = {"name": "MooncakeConnector"}
    assert toy.found(deploy) == ["PL034?: connector `other` carries no edge"]


def test_an_edge_and_its_stages_name_one_connector(toy: Toy) -> None:
    """Named in `edges` or by a stage, or by both alike."""
    declared = {
        "net": {"name": "MooncakeStoreConnector"},
        "shm": {"name": "SharedMemoryConnector"},
    }
    edges = [{"from": 0, "to": 1, "connector": "shm"}]
    assert toy.found({"connectors": declared, "edges": edges, "stages": [OUT]}) == [
        "PL032: edge 0 -> 1 names `shm` at one end and `net` at the other"
    ]
    [found] = toy.found({"edges": edges})
    assert found == "PL031: connector `shm` is not declared"
    [found] = toy.found({"edges": [{"from": 1, "to": 0}]})
    assert found == "CF034: no edge `1 -> 0` in this pipeline"
