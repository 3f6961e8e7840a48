"""The mesh of one rank: groups out of a plan, and a creation that all ranks share."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from stagemesh.errors import MeshError, PeerError
from stagemesh.parallel.mesh.device_mesh import Connect, DeviceMesh
from stagemesh.parallel.mesh.links import Pending
from stagemesh.parallel.mesh.ranks import GlobalRank, Group, GroupRank, Layout, layout_of
from stagemesh.parallel.mesh.stores import HashStore, Store
from stagemesh.plan.groups import slices
from stagemesh.spec.pipeline import ExecutionType
from tests.plan.layouts import planned

WAIT_S = 30.0
MESH = (("cfg", 2), ("sp_ring", 2), ("sp_ulysses", 2))


def layout() -> Layout:
    """Two by two by two ranks."""
    names = [name for name, _ in MESH]
    return Layout(world_size=8, groups={name: slices(MESH, {name}) for name in names})


def test_the_groups_are_those_of_the_plan() -> None:
    """Nothing is computed a second time, and axes that are stacked have one group together."""
    stage = planned(
        ExecutionType.DIFFUSION,
        stack=[{"axis": name, "size": size} for name, size in MESH],
    ).stages[0]
    made = layout_of(stage, [("sp_ring", "sp_ulysses")])
    assert made.world_size == 8
    assert {name: made.groups[name] for name, _ in MESH} == layout().groups
    assert made.groups["sp_ring+sp_ulysses"] == ((0, 1, 2, 3), (4, 5, 6, 7))


class Wire:
    """A link that carries nothing and remembers whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def all_to_all(
        self, sends: Sequence[torch.Tensor], receives: Sequence[torch.Tensor]
    ) -> Pending:
        """Never called."""
        raise NotImplementedError

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Never called."""
        raise NotImplementedError

    def close(self) -> None:
        """Remember it."""
        self.closed = True


def test_a_place_in_a_group_is_not_a_rank() -> None:
    """Members are found by the groups of the plan, never by arithmetic on ranks."""
    group = layout().of("sp_ring", GlobalRank(7))
    assert group == Group(axis="sp_ring", ranks=(GlobalRank(5), GlobalRank(7)), own=GroupRank(1))
    assert group.member(group.after(1)) == 5


def create_all(
    layouts: Sequence[Layout], connect: Connect, within_s: float = WAIT_S
) -> list[DeviceMesh | MeshError]:
    """Create the mesh of every rank, each in a thread."""
    store = HashStore()

    def one(rank: int) -> DeviceMesh | MeshError:
        try:
            return DeviceMesh.create(
                GlobalRank(rank), layouts[rank], store, connect=connect, within_s=within_s
            )
        except MeshError as error:
            return error

    with ThreadPoolExecutor(len(layouts)) as pool:
        return list(pool.map(one, range(len(layouts))))


def test_every_rank_gets_a_mesh_with_all_axes() -> None:
    """Each axis has the own group, and closing closes every link."""
    made: list[Wire] = []

    def connect(_group: Group, _store: Store, _within_s: float) -> Wire:
        made.append(Wire())
        return made[-1]

    for rank, mesh in enumerate(create_all([layout()] * 8, connect)):
        assert isinstance(mesh, DeviceMesh)
        assert {rank in mesh.over(name).group.ranks for name, _ in MESH} == {True}
        mesh.close()
    assert len(made) == 8 * 3
    assert all(wire.closed for wire in made)


def test_when_one_rank_fails_all_fail_and_nothing_stays_connected() -> None:
    """A typed error on every rank names the rank, the axis and the reason."""
    made: list[Wire] = []

    def connect(group: Group, _store: Store, _within_s: float) -> Wire:
        if group.axis == "sp_ring" and group.member(group.own) == 5:
            raise OSError("no memory")
        made.append(Wire())
        return made[-1]

    for error in create_all([layout()] * 8, connect):
        assert isinstance(error, MeshError)
        assert error.code == "RT070"
        assert str(error) == "rank 5: failed: `sp_ring`: no memory"
        assert error.help is not None
    assert made
    assert all(wire.closed for wire in made)


def test_a_rank_that_does_not_come_ends_the_wait_of_the_others() -> None:
    """The deadline is over, and the error says how many were waited for."""
    store = HashStore()
    with pytest.raises(MeshError, match=r"not all of 8 ranks came together within 0\.01 s"):
        DeviceMesh.create(GlobalRank(0), layout(), store, connect=lambda *_: Wire(), within_s=0.01)


def test_ranks_with_different_layouts_get_no_mesh() -> None:
    """Groups that are not the same value everywhere would wait for each other for ever."""
    other = Layout(world_size=2, groups={"tp": ((0,), (1,))})
    same = Layout(world_size=2, groups={"tp": ((0, 1),)})
    for error in create_all([same, other], lambda *_: Wire()):
        assert isinstance(error, MeshError)
        assert str(error) == "ranks `[1]` have another layout than rank 0"


def test_a_lost_peer_has_a_code_of_its_own() -> None:
    """Whoever stops a stage tells a missing mesh from one that broke."""
    error = PeerError("rank `1` of `tp` is gone")
    assert isinstance(error, MeshError)
    assert error.code == "RT071"
    assert error.help is not None
