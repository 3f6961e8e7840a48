"""Process groups: the algebra that holds for every layout."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.plan.groups import coordinates, groups_of, slices
from stagemesh.plan.world import Mesh, mesh_of, mesh_order, replica_count, world_size
from stagemesh.spec.axis import Axis, WorldRole
from stagemesh.spec.registry import AXES

ALL = {axis.name: axis for axis in AXES.declarations()}
WORLD_AXES = [axis for axis in ALL.values() if axis.role is WorldRole.MULTIPLIES_RANKS]

sizes_of_world_axes = st.dictionaries(
    st.sampled_from([axis.name for axis in WORLD_AXES]), st.integers(1, 3), max_size=5
)


def mesh(sizes: dict[str, int]) -> Mesh:
    """The mesh of the axes that have a size."""
    return mesh_of([ALL[name] for name in sizes], sizes)


@given(sizes_of_world_axes)
def test_the_product_of_the_world_axes_is_the_world(sizes: dict[str, int]) -> None:
    """Every rank has one point of the mesh, and every point one rank."""
    ranks = coordinates(mesh(sizes))
    assert world_size(mesh(sizes)) == math.prod(sizes.values()) == len(ranks)
    assert len({tuple(point.items()) for point in ranks}) == len(ranks)


@given(sizes_of_world_axes)
def test_groups_of_a_world_axis_partition_the_ranks(sizes: dict[str, int]) -> None:
    """Every rank is in exactly one group, and every group has the size of the axis."""
    for name, size in sizes.items():
        groups = groups_of(ALL[name], size, mesh(sizes))
        assert sorted(itertools.chain(*groups)) == list(range(world_size(mesh(sizes))))
        assert {len(group) for group in groups} == {size}


@given(sizes_of_world_axes)
def test_two_world_axes_meet_in_at_most_one_rank(sizes: dict[str, int]) -> None:
    """A pair of groups of different axes shares one rank or none."""
    for one, other in itertools.combinations(sizes, 2):
        pairs = itertools.product(
            groups_of(ALL[one], sizes[one], mesh(sizes)),
            groups_of(ALL[other], sizes[other], mesh(sizes)),
        )
        assert all(len(set(a) & set(b)) <= 1 for a, b in pairs)


@given(sizes_of_world_axes)
def test_an_overlay_is_a_union_of_groups_of_the_axes_it_names(sizes: dict[str, int]) -> None:
    """Each of its groups holds whole groups of every axis it unites."""
    ep = ALL["ep"]
    assert ep.overlay is not None
    united = [name for name in sizes if name in ep.overlay]
    groups = groups_of(ep, math.prod(sizes[name] for name in united), mesh(sizes))
    assert sorted(itertools.chain(*groups)) == list(range(world_size(mesh(sizes))))
    for name in united:
        for part in groups_of(ALL[name], sizes[name], mesh(sizes)):
            assert any(set(part) <= set(group) for group in groups)


@given(sizes_of_world_axes, st.data())
def test_the_order_of_entries_changes_nothing(sizes: dict[str, int], data: st.DataObject) -> None:
    """Mesh order comes from the declarations."""
    shuffled = dict(data.draw(st.permutations(list(sizes.items()))))
    assert mesh(shuffled) == mesh(sizes)


def test_ranks_run_fastest_along_tp_and_slowest_along_dp() -> None:
    """Two by two by two, in the order dp, pp, tp."""
    layout = mesh({"tp": 2, "dp": 2, "pp": 2})
    assert slices(layout, {"tp"}) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert slices(layout, {"pp"}) == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert slices(layout, {"dp"}) == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_a_prefix_overlay_takes_the_first_ranks() -> None:
    """`vae_pp` of 3 uses ranks 0 to 2 of 4."""
    assert groups_of(ALL["vae_pp"], 3, mesh({"sp_ulysses": 4})) == ((0, 1, 2),)


def test_axes_without_ranks_have_no_groups() -> None:
    """Replicas and requests in flight are not about ranks."""
    assert groups_of(ALL["stage_replica"], 2, ()) == ()
    assert groups_of(ALL["stage_pp"], 2, ()) == ()


def test_hsdp_supplies_the_world_only_when_nothing_else_does() -> None:
    """Alone it brings its own ranks, beside others it lies over theirs."""
    alone = mesh({"hsdp": 4, "tp": 1})
    assert alone == (("hsdp", 4),)
    assert groups_of(ALL["hsdp"], 4, alone) == ((0, 1, 2, 3),)
    beside = mesh({"hsdp": 4, "cfg": 2, "sp_ring": 2})
    assert beside == (("cfg", 2), ("sp_ring", 2))
    assert groups_of(ALL["hsdp"], 4, beside) == ((0, 1, 2, 3),)


def test_an_axis_without_position_comes_last_by_name() -> None:
    """A third party's axis need not know the numbers of ours."""
    named: list[Axis] = sorted(ALL.values(), key=mesh_order)
    assert [axis.name for axis in named][-5:] == [
        "ep",
        "hsdp",
        "stage_pp",
        "stage_replica",
        "vae_pp",
    ]


def test_replicas_multiply_apart_from_ranks() -> None:
    """They count devices, not ranks."""
    axes = [ALL["stage_replica"], ALL["tp"]]
    assert replica_count(axes, {"stage_replica": 3, "tp": 2}) == 3
