"""Stages bound to CPUs and NUMA nodes, and hosts that cannot do that."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config.environment import TOKEN
from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import DiagnosticError, StartupError
from stagemesh.plan.setup import NumaPlan, RankBinding, RecoveryPlan
from stagemesh.plan.values import DevicesPlan, Plan, ValuePlan
from stagemesh.runtime.launchers import choose
from stagemesh.runtime.launchers.numa import (
    NumaHost,
    binding,
    check_bindings,
    numbers,
    read_numa,
)
from stagemesh.runtime.launchers.quarters import here
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.replica import ReplicaId
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.launchers.fake_ray import FakeRay
from tests.runtime.launchers.stand_ins import NUMACTL, install
from tests.runtime.launchers.starts import SECRET, Starts
from tests.runtime.leaks import children, host
from tests.runtime.started import Started

CPUS = sorted(os.sched_getaffinity(0))
FIRST, LAST = str(CPUS[0]), str(CPUS[-1])
HOST = NumaHost(
    program="/bin/numactl",
    cpus=frozenset(range(8)),
    nodes=frozenset({0, 1}),
    device_nodes={0: 1, 1: 0},
)


def on(*cpus: str | None, node: int | None = None) -> tuple[RankBinding, ...]:
    """Ranks of a replica with these CPUs, on one node."""
    return tuple(RankBinding(node=node, cpus=each) for each in cpus)


def bound(ranks: int = 1, **stages: Sequence[tuple[RankBinding, ...]]) -> Plan:
    """Three stages, some of them with bindings of each replica; the talker has so many ranks."""
    made = [replace(each, recovery=RecoveryPlan(restart_delay=0.0)) for each in three_stages()]
    made = [
        replace(each, replicas=len(stages[each.name])) if each.name in stages else each
        for each in made
    ]
    made[1] = replace(made[1], ranks=ranks)
    plan = fake_plan(made)
    return replace(
        plan,
        stages=tuple(
            replace(
                stage,
                setup=replace(
                    stage.setup,
                    numa=NumaPlan(binds="engine", replicas=tuple(stages[stage.name])),
                ),
                values={"numa_bind": ValuePlan(value=True, layer="deploy", origin="d.yaml:3:5")},
            )
            if stage.name in stages
            else stage
            for stage in plan.stages
        ),
    )


@pytest.mark.parametrize(
    ("ranks", "own", "options"),
    [
        (on("2-3", node=0), [0], ["--physcpubind=2-3", "--membind=0"]),
        (on(None, node=0), [0], ["--cpunodebind=0", "--membind=0"]),
        (on("0, 4"), [0], ["--physcpubind=0,4", "--membind=1"]),
        (on(None), [0], ["--cpunodebind=1", "--membind=1"]),
        (on("0", "1"), [1], ["--physcpubind=1", "--membind=0"]),
        (on("0", "1"), [0, 1], ["--physcpubind=0,1", "--membind=1,0"]),
        (on("0", "0", node=1), [0, 1], ["--physcpubind=0", "--membind=1"]),
    ],
)
def test_the_words_for_numactl(
    ranks: tuple[RankBinding, ...], own: list[int], options: list[str]
) -> None:
    """Listed CPUs, else those of the node; the node that was said, else that of the device."""
    stage = bound(ranks=len(ranks), talker=[ranks]).stages[1]
    assert binding(stage, 0, own, HOST) == ("/bin/numactl", *options)


def test_a_device_without_a_known_node_binds_no_memory() -> None:
    """Memory is that of the CPUs then; who is not bound at all needs no program."""
    stage = bound(talker=[on("0-1")]).stages[1]
    assert binding(stage, 0, [0], replace(HOST, device_nodes={}))[1:] == ("--physcpubind=0-1",)
    assert binding(bound().stages[1], 0, [0], HOST) == ()


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        (on("0-7", node=1), []),
        (on("6-9", "1"), ["RT051: `numa_bind_cpus` of `talker`: CPU `8` cannot be used here"]),
        (on("0", node=4), ["RT051: `numa_bind_nodes` of `talker`: node `4` cannot be used here"]),
        (
            on("9", node=4),
            [
                "RT051: `numa_bind_cpus` of `talker`: CPU `9` cannot be used here",
                "RT051: `numa_bind_nodes` of `talker`: node `4` cannot be used here",
            ],
        ),
        (
            on(None, None, None),
            ["RT052: `numa_bind` of `talker`: the NUMA node of device `2` is not known"],
        ),
    ],
)
def test_what_a_host_does_not_have(ranks: tuple[RankBinding, ...], found: list[str]) -> None:
    """Everything is told, with the field that asks for it."""
    plan = bound(ranks=len(ranks), talker=[ranks])
    told = check_bindings(plan, here(plan), HOST)
    assert [f"{each.code}: {each.message}" for each in told] == found
    elsewhere = [ReplicaId(stage=0, replica=0)]
    assert check_bindings(plan, elsewhere, replace(HOST, program=None)) == ()


def test_a_missing_program_is_one_finding_for_all_stages() -> None:
    """It stands where the first of them asks for it."""
    plan = bound(thinker=[on("99")], talker=[on("0"), on("1")])
    [found] = check_bindings(plan, here(plan), replace(HOST, program=None))
    assert str(found) == (
        "error[RT050]: `numa_bind` of `thinker`, `talker` needs `numactl`, which is not installed"
        " (d.yaml:3:5)"
    )


def test_the_nodes_of_gpus_are_those_of_their_places_on_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number; where they differ in kind, CUDA may number them in another way."""
    for bus, node in (("0000:0A:00.0", 1), ("0000:1b:00.0", -1)):
        gpu = tmp_path / "proc/driver/nvidia/gpus" / bus
        gpu.mkdir(parents=True)
        (gpu / "information").write_text("Model: \t H200\n")
        device = tmp_path / "sys/bus/pci/devices" / bus.lower()
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/status").write_text("Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0-2\n")
    devices = DevicesPlan(
        kind="cuda", count=4, memory_bytes=None, imaginary=False, ids=("1", "0", "GPU-1f", "7")
    )
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    found = read_numa(devices, tmp_path)
    assert found.device_nodes == {1: 1}
    assert (set(found.nodes), set(found.cpus)) == ({0, 1, 2}, set(CPUS))
    (gpu / "information").write_text("Model: \t A2\n")
    assert read_numa(devices, tmp_path).device_nodes == {}
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert read_numa(devices, tmp_path).device_nodes == {1: 1}
    shutil.rmtree(device)
    assert read_numa(devices, tmp_path).device_nodes == {1: 1}
    nowhere = read_numa(devices, tmp_path / "nowhere")
    assert not nowhere.device_nodes
    assert not nowhere.nodes


def calls(program: Path) -> dict[int, list[str]]:
    """What the stand-in was asked, by process."""
    lines = program.with_name("numactl.calls").read_text(encoding="ascii").splitlines()
    return {int(pid): options for pid, *options in map(str.split, lines)}


@pytest.mark.slow
def test_every_rank_runs_on_its_own_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of an engine, each rank of several, and the one that comes back; no others."""
    program = install(tmp_path, "numactl", NUMACTL, monkeypatch)
    before = children()
    plan = bound(ranks=2, thinker=[on(LAST, node=0)], talker=[on(FIRST, LAST)])
    with Started(plan) as started:
        assert started.run().text == "hi#0hi#1hi#2"
        asked = calls(program)
        assert sorted(asked.values()) == sorted(
            [
                [f"--physcpubind={LAST}", "--membind=0"],
                [f"--physcpubind={FIRST}"],
                [f"--physcpubind={LAST}"],
            ]
        )
        ran_on = {pid: os.sched_getaffinity(pid) for pid in children() - before}
        assert ran_on == {
            **{pid: numbers(options[0].partition("=")[2]) for pid, options in asked.items()},
            started.pid(2): set(CPUS),
        }
        thinker = started.pid(0)
        os.kill(thinker, signal.SIGKILL)
        started.call(
            started.until(lambda: started.omni.health().stages[0].replicas[0].num_restarts > 0)
        )
        started.call(started.until_serving())
        assert started.pid(0) != thinker
        assert os.sched_getaffinity(started.pid(0)) == {CPUS[-1]}


@pytest.mark.slow
def test_a_node_is_all_of_its_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no list says less."""
    program = install(tmp_path, "numactl", NUMACTL, monkeypatch)
    with Started(bound(talker=[on(None, node=0), on(FIRST)])) as started:
        assert calls(program)[started.pid(1)] == ["--cpunodebind=0", "--membind=0"]
        assert calls(program)[started.pid(1, 1)] == [f"--physcpubind={FIRST}"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("numactl") is None, reason="needs numactl")
def test_the_real_program_is_asked_in_words_that_it_knows() -> None:
    """As far as this host has it."""
    with Started(bound(ranks=2, thinker=[on(LAST, node=0)], talker=[on(FIRST, LAST)])) as started:
        assert os.sched_getaffinity(started.pid(0)) == {CPUS[-1]}
        assert os.sched_getaffinity(started.pid(1)) == {CPUS[0]}
        assert started.run().text == "hi#0hi#1hi#2"


@pytest.mark.slow
def test_what_cannot_be_bound_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told before there is any process."""
    monkeypatch.setenv("PATH", str(tmp_path))
    before = host()
    with pytest.raises(DiagnosticError, match="`numa_bind` of `talker` needs `numactl`") as caught:
        asyncio.run(AsyncOmni(bound(talker=[on(FIRST)])).start())
    assert [each.code for each in caught.value.diagnostics] == ["RT050"]
    assert host() == before


@pytest.mark.slow
def test_a_program_that_fails_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the last words of the process that it should have become."""
    install(tmp_path, "numactl", "import sys\nsys.exit('not permitted')", monkeypatch)
    told = "stage `talker` replica `0` exited with code 1\nnot permitted"
    with pytest.raises(StartupError, match=told):
        Started(bound(talker=[on(FIRST)])).__enter__()


@pytest.mark.nightly
@pytest.mark.slow
def test_headless_starts_bind_what_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the head what it runs itself; who cannot says so."""
    monkeypatch.setenv(TOKEN, SECRET)
    program = install(tmp_path, "numactl", NUMACTL, monkeypatch)
    plan = bound(thinker=[on(FIRST)], talker=[on(LAST)])
    with Starts(plan, tmp_path) as starts:
        worker = starts.worker(1, "127.0.0.3")
        starts.worker(2, "127.0.0.4")
        head = starts.head(0)
        assert head.run().text == "hi#0hi#1hi#2"
        asked = calls(program)
        [talker] = set(asked) - {head.pid(0)}
        assert os.sched_getaffinity(head.pid(0)) == {CPUS[0]}
        assert os.sched_getaffinity(talker) == {CPUS[-1]}
        assert asked[talker] == [f"--physcpubind={LAST}"]
        assert worker.process.poll() is None
    program.unlink()
    with Starts(plan, tmp_path) as starts:
        code, said = starts.worker(1, "127.0.0.3").ended()
    assert (code, "`numa_bind` of `talker` needs `numactl`" in said) == (1, True)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_node_of_ray_binds_what_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own program, to CPUs of its own; where it cannot, the start says why."""
    program = install(tmp_path, "numactl", NUMACTL, monkeypatch)
    ray = FakeRay()
    monkeypatch.setattr(choose, "load_ray", lambda: ray)
    plan = replace(bound(talker=[on(LAST)]), launch=LaunchOptions(worker_backend="ray"))
    with Started(plan) as started:
        assert started.run().text == "hi#0hi#1hi#2"
        [(talker, options)] = calls(program).items()
        assert options == [f"--physcpubind={LAST}"]
        assert os.sched_getaffinity(talker) == {CPUS[-1]}
    program.unlink()
    with pytest.raises(StartupError, match="`numa_bind` of `talker` needs `numactl`"):
        Started(plan).__enter__()
    for actor in ray.actors:
        actor.join()
