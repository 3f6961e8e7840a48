"""The twelve axes together: what is declared fits what the planner does with it."""

from __future__ import annotations

import pytest

from stagemesh.spec.axis import Axis, Owner, WorldRole
from stagemesh.spec.patterns import RouteByStage
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.registry import AXES

ALL = {axis.name: axis for axis in AXES.declarations()}
LANGUAGE = {ExecutionType.LLM_AR, ExecutionType.LLM_GENERATION}
PICTURES = {"sp_ulysses", "sp_ring", "cfg", "vae_pp", "hsdp"}


def test_there_are_twelve_axes_and_each_is_named_like_its_file() -> None:
    """A file's name is the plug-in's name is the config value."""
    assert sorted(ALL) == sorted(AXES.modules())
    assert set(ALL) == PICTURES | {"tp", "dp", "pp", "ep", "cp", "stage_replica", "stage_pp"}


def test_ranks_are_ordered_dp_cfg_pp_cp_ring_ulysses_tp() -> None:
    """Chatty axes lie on neighbouring ranks."""
    placed = [axis for axis in ALL.values() if axis.mesh_position is not None]
    ordered = sorted(placed, key=lambda axis: axis.mesh_position or 0)
    names = [axis.name for axis in ordered]
    assert names == ["dp", "cfg", "pp", "cp", "sp_ring", "sp_ulysses", "tp"]


@pytest.mark.parametrize("axis", ALL.values(), ids=ALL.keys())
def test_an_axis_has_a_mesh_position_exactly_when_it_multiplies_ranks(axis: Axis) -> None:
    """Only axes that bring ranks take part in their order."""
    assert (axis.mesh_position is not None) == (axis.role is WorldRole.MULTIPLIES_RANKS)


@pytest.mark.parametrize("axis", ALL.values(), ids=ALL.keys())
def test_policies_exist_exactly_where_requests_are_routed(axis: Axis) -> None:
    """`routing:` is for axes that spread requests."""
    assert bool(axis.policies) == isinstance(axis.routing, RouteByStage)


@pytest.mark.parametrize("axis", ALL.values(), ids=ALL.keys())
def test_every_axis_that_is_named_in_a_declaration_exists(axis: Axis) -> None:
    """Relations lead to axes that are there."""
    named = {*axis.excludes, *(axis.overlay or ())}
    named |= {name for names in axis.size_from.values() for name in names}
    assert named <= set(ALL)


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_axes_of_pictures_fit_diffusion_alone(name: str) -> None:
    """They have no meaning for language models."""
    assert ALL[name].fits == {ExecutionType.DIFFUSION}


def test_the_size_of_ep_follows_from_the_kind_of_stage() -> None:
    """Language models: tp x dp; diffusion: the sequence and guidance axes too."""
    sizes = ALL["ep"].size_from
    assert {sizes[kind] for kind in LANGUAGE} == {("tp", "dp")}
    assert sizes[ExecutionType.DIFFUSION] == ("tp", "sp_ulysses", "sp_ring", "cfg", "dp")


def test_the_runtime_owns_what_lies_between_stages() -> None:
    """Everything else is carried out inside one engine."""
    delegated = {axis.name for axis in ALL.values() if axis.owner is Owner.DELEGATED}
    assert delegated == {"stage_replica", "stage_pp"}
