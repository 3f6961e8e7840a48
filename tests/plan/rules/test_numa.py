"""NUMA: lists with one entry for each device, given to the ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagemesh.config.host import Host
from stagemesh.plan.render import plan_text
from stagemesh.plan.rules.numa import is_cpu_list
from stagemesh.plan.setup import NumaPlan, RankBinding
from tests.plan.rules.toys import HOST, TWO, Toy, listed


def bound(*cpus: str | None, node: int | None = None) -> tuple[RankBinding, ...]:
    """Ranks of a replica with these CPUs."""
    return tuple(RankBinding(node=node, cpus=each) for each in cpus)


def test_the_documented_example_is_taken(toy: Toy) -> None:
    """Two stages of one device on one node."""
    toy = replace(toy, model=TWO)
    plan = toy.plan(
        listed(
            {"numa_bind": True, "numa_bind_nodes": [0], "numa_bind_cpus": ["2-3"]},
            {"numa_bind": True, "numa_bind_nodes": [0], "numa_bind_cpus": ["4-7"]},
        )
    )
    assert [stage.setup.numa for stage in plan.stages] == [
        NumaPlan(binds="engine", replicas=(bound("2-3", node=0),)),
        NumaPlan(binds="engine", replicas=(bound("4-7", node=0),)),
    ]
    assert plan.not_runnable == ()
    toy.keeps(plan)
    assert "NUMA: its engine of replica 0 on node 0, CPUs 2-3\n" in plan_text(plan)


def test_workers_take_the_lists_where_there_are_some(toy: Toy) -> None:
    """With processes of their own the engine keeps the wider node."""
    toy = replace(toy, devices="4xH100")
    entry = {"tensor_parallel_size": 2, "num_replicas": 2, "numa_bind": True}
    once = toy.plan(listed({**entry, "numa_bind_cpus": ["0-3", "4-7"]})).stages[0].setup.numa
    same = bound("0-3", "4-7")
    assert once == NumaPlan(binds="workers", replicas=(same, same))
    cpus = ["0", "1", "2", "3"]
    each = toy.plan(listed({**entry, "numa_bind_cpus": cpus})).stages[0].setup.numa
    assert each == NumaPlan(binds="workers", replicas=(bound("0", "1"), bound("2", "3")))


def test_without_lists_the_device_decides(toy: Toy) -> None:
    """The switch alone is enough where devices have a node; off, it asks for nothing."""
    cuda = replace(toy, host=Host(kind="cuda", count=1, memory_bytes=None, ids=("0",)))
    plan = cuda.plan(listed({"numa_bind": True}))
    assert plan.stages[0].setup.numa == NumaPlan(binds="engine", replicas=(bound(None),))
    assert "NUMA: its engine of replica 0 on the device's node\n" in plan_text(plan)
    assert plan.not_runnable == ()
    on_cpu = replace(toy, model=TWO).plan(listed({"numa_bind": True}))
    assert on_cpu.not_runnable == (
        "`s0`: `numa_bind` on CPU devices needs `numa_bind_nodes` or `numa_bind_cpus`",
    )
    off = toy.plan(listed({"numa_bind": False}))
    assert (off.stages[0].setup.numa, off.not_runnable) == (None, ())


@pytest.mark.parametrize(
    ("entry", "got", "need"),
    [
        ({}, 2, "`1`"),
        ({"num_replicas": 2}, 3, "`1` or `2`"),
        ({"tensor_parallel_size": 4}, 2, "`4`"),
        ({}, 0, "`1`"),
    ],
)
def test_each_device_has_one_entry(toy: Toy, entry: dict[str, object], got: int, need: str) -> None:
    """Of one replica, or of all of them."""
    toy = replace(toy, devices="8xH100")
    nodes = {"numa_bind": True, "numa_bind_nodes": list(range(got))}
    [found] = toy.found(listed({**entry, **nodes}))
    assert found == f"PL104: `numa_bind_nodes` of `s0` has `{got}` entries and needs {need}"


@pytest.mark.parametrize("text", ["0", "2-3", "0,2,4-7", "0, 4", "3-3"])
def test_lists_of_cpus(text: str) -> None:
    """Numbers and ascending ranges."""
    assert is_cpu_list(text)


@pytest.mark.parametrize("text", ["", "a", "3-2", "1-", "-1", "0,,1", "1;2", "9" * 9, "٣"])
def test_what_is_no_list_of_cpus(toy: Toy, text: str) -> None:
    """Told with the text that was written."""
    assert not is_cpu_list(text)
    found = toy.one(listed({"numa_bind": True, "numa_bind_cpus": [text]}))
    assert found.code == "PL105"
    assert found.message.endswith("in `numa_bind_cpus` of `s0` is no list of CPUs")


def test_binding_needs_linux(toy: Toy) -> None:
    """Elsewhere nothing can be bound; assumed devices are on Linux."""
    mac = replace(toy, host=replace(HOST, system="darwin"))
    [found] = mac.found(listed({"numa_bind": True}))
    assert found == "PL106: `numa_bind` of `s0` needs Linux, and this host runs `darwin`"
    assert replace(mac, devices="1xH100").found(listed({"numa_bind": True})) == []
