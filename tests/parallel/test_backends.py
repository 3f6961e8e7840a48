"""Which back end is taken, how long memory is looked at, and that a silent rank ends a wait."""

from __future__ import annotations

import os
import platform
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from stagemesh.errors import PeerError
from stagemesh.parallel.mesh import host_memory
from stagemesh.parallel.mesh.backends import CONNECT, Backend, choose
from stagemesh.parallel.mesh.ranks import GlobalRank, Group, GroupRank
from stagemesh.parallel.mesh.stores import HashStore


@pytest.mark.parametrize(
    ("device", "one_host", "machine", "wanted"),
    [
        ("cuda", True, "x86_64", Backend.NCCL),
        ("cpu", True, "x86_64", Backend.HOST_MEMORY),
        ("cpu", True, "aarch64", Backend.GLOO),
        ("cpu", False, "x86_64", Backend.GLOO),
    ],
)
def test_the_back_end_follows_from_devices_and_hosts(
    device: str, machine: str, wanted: Backend, *, one_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is shared on one host alone, and where stores keep their order."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert choose(device, one_host=one_host) is wanted
    assert set(CONNECT) == set(Backend)


def test_waits_look_only_where_every_rank_has_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 50 us at most; where ranks share cores they block at once."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(4)))
    monkeypatch.setattr(os, "getloadavg", lambda: (1.9, 0.0, 0.0))
    assert host_memory.spin_s(3) == 50e-6
    assert host_memory.spin_s(4) == 0.0


@pytest.mark.parametrize("spin_s", [0.0, 50e-6])
def test_a_rank_that_is_silent_ends_the_wait_at_the_deadline(
    spin_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the wait looks first or blocks at once; what failed is never gone on with."""
    monkeypatch.setattr(host_memory, "spin_s", lambda _ranks: spin_s)
    store, ranks = HashStore(), (GlobalRank(4), GlobalRank(6))

    def connect(place: int) -> host_memory.HostMemoryLink:
        group = Group(axis="tp", ranks=ranks, own=GroupRank(place))
        return host_memory.connect(group, store, 0.5)

    def add(link: host_memory.HostMemoryLink) -> float:
        tensor = torch.ones(1)
        link.all_reduce(tensor)
        return float(tensor)

    with ThreadPoolExecutor(2) as threads:
        links = list(threads.map(connect, range(2)))
        assert list(threads.map(add, links)) == [2.0, 2.0]
    with pytest.raises(PeerError, match=r"rank `6` of `tp` did not answer within 0\.5 s"):
        add(links[0])
    with pytest.raises(PeerError, match="the mesh has been closed"):
        add(links[0])  # half a sum lies in the memory: no other may follow it
    assert add(links[1]) == 2.0  # the half that was sent is its own
    with pytest.raises(PeerError, match="rank `4` of `tp` is gone"):
        add(links[1])
