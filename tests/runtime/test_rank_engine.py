"""What an engine of one rank is given of the plan, and which devices its process sees."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from stagemesh.config.host import VISIBLE
from stagemesh.engines._fake import FakeEngine
from stagemesh.plan.values import DevicesPlan, Plan
from stagemesh.runtime import rank_engine as module
from stagemesh.runtime.rank_engine import rank_engine
from stagemesh.spec.engine import EngineContext, Rendezvous
from stagemesh.testing.fake_plan import FakeStage, fake_plan

MEETING = Rendezvous(address="127.0.0.1", port=1)


def plan(kind: str, *ids: str) -> Plan:
    """Two replicas of two ranks, on devices with such names."""
    whole = fake_plan([FakeStage(name="only", replicas=2, ranks=2)])
    devices = DevicesPlan(kind=kind, count=4, memory_bytes=None, imaginary=False, ids=ids)
    return replace(whole, devices=devices)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[EngineContext]:
    """What engines were given, each in what would be a process of its own."""
    found: list[EngineContext] = []

    def factory(context: EngineContext) -> FakeEngine:
        found.append(context)
        return FakeEngine(context)

    monkeypatch.setattr(module, "resolve", lambda _reference: factory)
    monkeypatch.setenv(VISIBLE, "all of them")
    return found


@pytest.mark.parametrize(
    ("devices", "replica", "rank", "device", "visible"),
    [
        (plan("cpu"), 1, 1, "cpu", "all of them"),
        (plan("cuda"), 1, 0, "cuda:2", "all of them"),
        (plan("cuda", "4", "5", "6", "7"), 1, 1, "cuda:0", "7"),
        (plan("cuda", "GPU-a", "GPU-b", "GPU-c", "GPU-d"), 0, 1, "cuda:0", "GPU-b"),
    ],
    ids=["CPU", "nameless", "numbers", "names"],
)
def test_a_rank_sees_its_own_device(
    given: list[EngineContext], devices: Plan, replica: int, rank: int, device: str, visible: str
) -> None:
    """By the name that the driver knows; it is the first one then."""
    rank_engine(devices, devices.stages[0], replica, rank=rank, rendezvous=MEETING)
    (context,) = given
    assert context.device == device
    assert os.environ[VISIBLE] == visible
    assert (context.rank, context.world_size, context.rendezvous) == (rank, 2, MEETING)
    assert context.groups == {"tp": ((0, 1),)}


def test_a_replica_is_found_by_its_number(given: list[EngineContext]) -> None:
    """A plan that is a share of another one has gaps in them."""
    whole = plan("cuda")
    (stage,) = whole.stages
    share = replace(stage, replicas=stage.replicas[1:])
    rank_engine(replace(whole, stages=(share,)), share, 1, rank=0, rendezvous=MEETING)
    assert given[0].device == "cuda:2"
