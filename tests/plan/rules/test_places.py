"""What is wrong inside a value is told at the member at fault, at any depth and in any layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from stagemesh.spec.duplex import DuplexModel
from tests.plan.rules.toys import AR, DENOISER, DIT, TWO, Toy, chain, listed

ATTENTION: Final = "diffusion_attention_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A part of `Voice`."""

    low: int = 1
    """A whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """`additional_config` of a stage, nested."""

    bands: tuple[Band, ...] = ()
    """Several."""
    speakers: dict[str, Band] = field(default_factory=dict)
    """By name."""


VOICED: Final = chain(AR, options=Voice)
DUPLEX: Final = replace(TWO, duplex=DuplexModel(plugin="m:duplex", default_session_mode="duplex"))
GROUPS: Final = {"replica_policy": "least_sessions", "max_sessions_per_replica": 1}


def places(toy: Toy, *deploys: Mapping[str, object]) -> list[tuple[str, str]]:
    """Code and path of every finding; each stands at a column of its own."""
    found = toy.build(*deploys).diagnostics
    origins = [each.origin for each in found]
    columns = {(origin.source, origin.column) for origin in origins if origin is not None}
    assert len(columns) == len(found)
    assert all(origin is not None and origin.line == 1 for origin in origins)
    return [(each.code, each.origin.path if each.origin else "") for each in found]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"default": "NO"}, [("PL096", "default")]),
        ({"default": {"backend": "NO"}}, [("PL096", "default.backend")]),
        (
            {"per_role": {"self": {"backend": "NO"}, "cross": "NONE"}},
            [("PL096", "per_role.self.backend"), ("PL096", "per_role.cross")],
        ),
        ({"per_role": {"self": "TORCH_SDPA", "cross": 3}}, [("PL089", "per_role.cross")]),
        ({"per_role": 3}, [("PL089", "per_role")]),
        ({"others": 3}, [("PL089", "others")]),
    ],
)
def test_kernels_are_told_at_their_names(
    toy: Toy, config: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    """Not at the field that holds all of them."""
    found = places(replace(toy, model=DENOISER), listed({ATTENTION: config}))
    assert found == [(code, f"stages[0].{ATTENTION}.{path}") for code, path in expected]


def test_a_member_is_told_in_the_layer_that_it_came_from(toy: Toy) -> None:
    """Mappings merge, so the parts of one may stand in two files."""
    roles = [{"per_role": {role: {"backend": "NO"}}} for role in ("self", "cross")]
    given = [listed({ATTENTION: each}) for each in roles]
    found = replace(toy, model=DENOISER).build(*given).diagnostics
    told = {str(each.origin).partition(":")[0].rpartition("/")[2] for each in found}
    assert told == {"0.json", "deploy.json"}


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"bands": [{"low": 1}, {"low": "x"}]}, "bands[1].low"),
        ({"bands": [{"low": 1}, 2]}, "bands[1]"),
        ({"speakers": {"a": {"low": "x"}}}, "speakers.a.low"),
    ],
)
def test_options_of_a_model_are_told_at_any_depth(
    toy: Toy, config: dict[str, object], path: str
) -> None:
    """Lists are replaced as a whole, and still their items have places."""
    found = places(replace(toy, model=VOICED), listed({"additional_config": config}))
    assert found == [("CF012", f"stages[0].additional_config.{path}")]


def test_an_entry_of_a_list_is_told_at_itself(toy: Toy) -> None:
    """CPUs of the second device."""
    entry = {"tensor_parallel_size": 2, "numa_bind": True, "numa_bind_cpus": ["0", "9-8"]}
    assert places(toy, listed(entry)) == [("PL105", "stages[0].numa_bind_cpus[1]")]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([{"0": 0, "1": 3}], [("PL077", "[0].1")]),
        ([{"0": 0, "1": 0}, {"0": 0}], [("PL076", "[1]")]),
        ([{"0": 0, "1": 0, "7": 0}], [("PL076", "[0].7")]),
        ([{"0": 0, "1": 0}, {"0": 0, "1": 0}], [("PL078", "[1]")]),
    ],
)
def test_groups_of_replicas_are_told_at_the_group(
    toy: Toy, groups: list[dict[str, int]], expected: list[tuple[str, str]]
) -> None:
    """Or at the stage that it names wrongly."""
    section = {"duplex_session": {**GROUPS, "replica_groups": groups}}
    found = places(replace(toy, model=DUPLEX), section)
    assert found == [(code, f"duplex_session.replica_groups{path}") for code, path in expected]


def test_the_short_form_is_told_at_itself(toy: Toy) -> None:
    """It becomes a member of the structured choice, and keeps its place."""
    entry = {ATTENTION: {"per_role": {}}, "diffusion_attention_backend": "NO"}
    found = replace(toy, model=chain(DIT)).build(listed(entry)).diagnostics
    [told] = [each.origin for each in found if each.code == "PL096"]
    assert told is not None
    assert told.path == "stages[0].diffusion_attention_backend"
