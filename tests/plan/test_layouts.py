"""What holds for every layout, whatever is stacked with which options and however it is written."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.plan.values import AxisPlan, StagePlan
from stagemesh.plan.world import mesh_of, mesh_order, world_size
from stagemesh.spec.axis import Axis, WorldRole
from stagemesh.spec.pipeline import ExecutionType
from tests.examples import fewer
from tests.plan.layouts import (
    AXIS,
    Layout,
    as_fields,
    attempt,
    layouts,
    planned,
    without_places,
)


def stage_of(layout: Layout) -> StagePlan:
    """Plan the one stage."""
    return planned(layout.kind, stack=layout.stack).stages[0]


def axes_of(stage: StagePlan, role: WorldRole) -> list[AxisPlan]:
    """The axes of a stage that do the same to its ranks."""
    return [axis for axis in stage.axes if axis.role == role.value]


@fewer(2)
@given(layouts())
def test_the_world_is_the_product_of_the_axes_that_bring_ranks(layout: Layout) -> None:
    """Or what one axis supplies where there are none; and every rank has its own coordinates."""
    stage = stage_of(layout)
    bringing = [layout.sizes[name] for name in layout.world_axes]
    supplied = [
        layout.sizes[name]
        for name in layout.sizes
        if AXIS[name].supplies_world and math.prod(bringing) == 1
    ]
    assert stage.world_size == math.prod(bringing) * math.prod(supplied)
    points = [tuple(rank.coords.items()) for rank in stage.replicas[0].ranks]
    assert len(set(points)) == len(points) == stage.world_size


@fewer(2)
@given(layouts())
def test_groups_of_world_axes_partition_the_ranks_and_meet_in_one_at_most(layout: Layout) -> None:
    """Each rank is in one group of an axis; groups of two axes share one rank or none."""
    stage = stage_of(layout)
    axes = axes_of(stage, WorldRole.MULTIPLIES_RANKS)
    for axis in axes:
        assert sorted(itertools.chain(*axis.groups)) == list(range(stage.world_size))
        assert {len(group) for group in axis.groups} == {axis.size}
    for one, other in itertools.combinations(axes, 2):
        for first, second in itertools.product(one.groups, other.groups):
            assert len(set(first) & set(second)) <= 1


@fewer(2)
@given(layouts())
def test_an_overlay_is_a_union_of_groups_or_the_first_ranks(layout: Layout) -> None:
    """As its declaration says."""
    stage = stage_of(layout)
    below = axes_of(stage, WorldRole.MULTIPLIES_RANKS)
    for axis in axes_of(stage, WorldRole.REUSES_RANKS):
        declared = AXIS[axis.axis]
        if declared.overlay is None:
            assert axis.groups == (tuple(range(axis.size)),)
            continue
        assert sorted(itertools.chain(*axis.groups)) == list(range(stage.world_size))
        for other in (each for each in below if each.axis in declared.overlay):
            for part in other.groups:
                assert any(set(part) <= set(group) for group in axis.groups)


@fewer(2)
@given(layouts(), st.data())
def test_the_order_of_entries_changes_nothing(layout: Layout, data: st.DataObject) -> None:
    """But for the places of the values."""
    shuffled = data.draw(st.permutations(layout.stack))
    one = planned(layout.kind, stack=layout.stack)
    other = planned(layout.kind, stack=shuffled)
    assert without_places(one) == without_places(other)


@fewer(2)
@given(layouts(in_fields=True), st.data())
def test_fields_and_entries_that_say_the_same_give_one_plan(
    layout: Layout, data: st.DataObject
) -> None:
    """One canonical axis for every spelling, whatever the order of the fields."""
    said = as_fields(layout)
    shuffled = dict(data.draw(st.permutations(list(said.items()))))
    one = planned(layout.kind, stack=layout.stack)
    other = planned(layout.kind, said=shuffled)
    assert without_places(one) == without_places(other)


@pytest.mark.parametrize("kind", list(ExecutionType))
def test_every_axis_that_fits_can_be_stacked_alone(kind: ExecutionType) -> None:
    """With size 1, and its ranks counted with size 2."""
    for axis in (axis for axis in AXIS.values() if kind in axis.fits):
        for size in (1, 2):
            result = attempt(kind, stack=[{"axis": axis.name, "size": size}])
            expected = _alone(axis, size)
            assert [found.code for found in result.diagnostics if found.is_error] == expected


def _alone(axis: Axis, size: int) -> list[str]:
    """Codes for an axis alone: what reuses ranks finds one only."""
    if size == 1 or axis.role is not WorldRole.REUSES_RANKS or axis.supplies_world:
        return []
    return ["AX022"] if axis.size_from else ["AX036"]


def test_the_counting_of_ranks_knows_no_axis_by_name() -> None:
    """Renamed declarations give the same world."""
    renamed = {name.upper(): replace(axis, name=name.upper()) for name, axis in AXIS.items()}
    sizes = dict.fromkeys(renamed, 2)
    mesh = mesh_of(renamed.values(), sizes)
    assert world_size(mesh) == 2 ** len(
        [axis for axis in renamed.values() if axis.mesh_position is not None]
    )
    assert [name for name, _ in mesh] == [
        axis.name
        for axis in sorted(renamed.values(), key=mesh_order)
        if axis.mesh_position is not None
    ]
