"""Nothing that is said about an axis of size 1 is lost without a word."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.fields import stage_fields
from stagemesh.config.plain import plain_fields
from stagemesh.plan.build import build
from stagemesh.spec.axis import ENABLED, SIZE, Axis, WorldRole
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.registry import AXES
from tests.config.flagged import CATALOG, codes_of, made_from, text_of
from tests.plan.making import Said, attempt, axis, catalog, request, solo

ALL: Final = {each.name: each for each in AXES.declarations()}
VALUES: Final[Mapping[tuple[str, str], object]] = {
    ("cfg", "branches"): 3,
    ("dp", "key"): "user",
    ("dp", "load_bound"): 2.0,
    ("dp", "local"): 1,
    ("hsdp", "replicate"): 1,
    ("hsdp", "shard"): 1,
    ("sp_ring", "exchange"): "allgather",
    ("sp_ulysses", "a2a_permute"): True,
    ("sp_ulysses", "mode"): "strict",
    ("sp_ulysses", "sequence_parallel_size"): 1,
    ("stage_pp", "unit"): "chunks",
    ("stage_replica", "key"): "user",
    ("stage_replica", "load_bound"): 2.0,
    ("tp", "text_encoder"): 2,
    ("vae_pp", "mode"): "spatial_shard_width",
}
"""A value of every option of every axis that its size of 1 allows."""
OPTIONS: Final = [
    (declared, option.name)
    for declared in ALL.values()
    for option in dataclasses.fields(declared.options)
]


def kind(declared: Axis) -> ExecutionType:
    """A kind of stage that an axis fits."""
    return min(declared.fits, key=lambda each: each.value)


def test_the_table_has_every_option() -> None:
    """So that a new one is thought of."""
    assert {(declared.name, option) for declared, option in OPTIONS} == set(VALUES)


@pytest.mark.parametrize(
    ("declared", "option"), OPTIONS, ids=[f"{each.name}.{option}" for each, option in OPTIONS]
)
def test_an_option_acts_at_size_one_or_is_told(declared: Axis, option: str) -> None:
    """By what its axis declares about it."""
    value = VALUES[declared.name, option]
    acts = option in declared.acts_alone | declared.about_size
    is_told = not acts and declared.role is not WorldRole.NO_RANKS
    axes = [axis(declared.name, 1, None, **{option: value})]
    if option == "text_encoder":  # it needs ranks that another axis brings
        axes.append(axis("sp_ring", 2))
    stages = solo(ExecutionType.DIFFUSION if option == "text_encoder" else kind(declared))
    result = attempt(request(stages, {"thinker": Said(axes=axes)}, facts=StageFacts(guidance=True)))
    assert result.plan is not None, result.diagnostics
    codes = ["PL124"] if option == "unit" else ["AX012"] * is_told  # one stage has no chunks
    assert [found.code for found in result.diagnostics] == codes
    for found in result.diagnostics if is_told else ():
        assert found.message == (
            f"`{option}` of `thinker` has no effect: `{declared.name}` has size `1`"
        )
        assert found.origin is not None
        assert not found.is_error


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (sets.name, sets.member)
        for declared in ALL.values()
        for sets in declared.deploy_fields
        if sets.member not in (SIZE, ENABLED)
        and declared.switch is None
        and sets.member not in declared.acts_alone | declared.about_size
    ],
)
@pytest.mark.parametrize("way", ["deploy", "flag", "set"])
def test_a_stage_field_of_an_axis_without_ranks_is_told(
    name: str, option: str, way: str, tmp_path: Path
) -> None:
    """In the words in which it was written."""
    declared = next(each for each in ALL.values() if each.field_for(option) == name)
    value = VALUES[declared.name, option]
    text = f" {value}" if value is not True else ""
    flag = f"--{name.replace('_', '-')}{text}"
    line = {"deploy": "", "flag": flag, "set": f"--set dit.{name}={str(value).lower()}"}[way]
    stage = {"stage_id": 0, **({name: value} if way == "deploy" else {})}
    made = made_from(tmp_path, line, model="picture", deploy={"stages": [stage]})
    assert made.plan is not None, text_of(made)
    assert codes_of(made) == ["AX012"]
    assert made.diagnostics[0].message.startswith(f"`{name}` of `dit` has no effect")


def test_a_default_says_nothing() -> None:
    """It is what holds anyway."""
    axes = [axis("sp_ulysses", 1, mode="advanced_uaa"), axis("sp_ring", 1, exchange="ring")]
    given = request(solo(ExecutionType.DIFFUSION), {"thinker": Said(axes=axes)})
    assert attempt(given).diagnostics == ()


def test_who_takes_an_axis_back_means_its_options(tmp_path: Path) -> None:
    """In a higher layer."""
    deploy = {"stages": [{"stage_id": 0, "ulysses_degree": 2, "ulysses_mode": "strict"}]}
    made = made_from(tmp_path, "--ulysses-degree 1", model="picture", deploy=deploy)
    assert codes_of(made) == []
    deploy = {"stages": [{"stage_id": 0, "ring_degree": 2, "mask_sp_padding": True}]}
    made = made_from(tmp_path, "--set dit.ring_degree=1", model="picture", deploy=deploy)
    assert codes_of(made) == []


@pytest.mark.parametrize("size", ["--ulysses-degree 1", "--set dit.ulysses_degree=1"])
def test_what_is_typed_in_one_command_is_not_taken_back_by_it(size: str, tmp_path: Path) -> None:
    """One flag for all stages and one for one of them contradict each other like any two."""
    made = made_from(tmp_path, f"{size} --ulysses-mode strict", model="picture")
    assert codes_of(made) == ["AX012"]


def test_an_option_of_all_stages_counts_where_one_acts_on_it(tmp_path: Path) -> None:
    """The refiner has no ranks to share heads; told together where no stage has any."""
    line = "--ulysses-mode strict"
    made = made_from(tmp_path, f"{line} --set base.ulysses_degree=2", model="two_dits")
    assert codes_of(made) == []
    made = made_from(tmp_path, line, model="two_dits")
    assert codes_of(made) == ["AX012"]
    assert "`refiner`" in made.diagnostics[0].notes[0].message


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--hsdp-shard-size 2", ["is not given", "nor has that of `refiner`"]),
        ("--hsdp-shard-size 2 --set base.use_hsdp=true", []),
        ("--hsdp-shard-size 2 --use-hsdp --set refiner.use_hsdp=false", []),
        (
            "--hsdp-shard-size 2 --use-hsdp --set base.use_hsdp=false --set refiner.use_hsdp=false",
            ["is `false`", "`use_hsdp` is set here", "nor has that of `refiner`"],
        ),
    ],
)
def test_an_option_of_all_stages_needs_the_switch_of_one(
    line: str, told: list[str], tmp_path: Path
) -> None:
    """Where all have it off, or none has it, that is told once."""
    made = made_from(tmp_path, line, model="two_dits")
    assert codes_of(made) == ["AX010"] * bool(told), text_of(made)
    texts = [text for each in made.diagnostics for text in (each.message, *_notes(each))]
    assert len(texts) == len(told)
    assert all(text.endswith(end) for text, end in zip(texts, told, strict=True))


def _notes(found: Diagnostic) -> list[str]:
    return [note.message for note in found.notes]


@pytest.mark.parametrize(
    ("line", "switch"),
    [
        ("--enable-expert-parallel", "enable_expert_parallel"),
        ("--use-hsdp --hsdp-shard-size 1", "use_hsdp"),
    ],
)
def test_a_switch_that_comes_to_one_rank_is_told(line: str, switch: str, tmp_path: Path) -> None:
    """What was switched on is not there."""
    made = made_from(tmp_path, line, model="picture")
    assert codes_of(made) == ["AX012"]
    assert f"`{switch}` of `dit` has no effect" in made.diagnostics[0].message


@pytest.mark.parametrize(
    ("model", "line", "codes"),
    [
        ("picture", "--mask-sp-padding", ["AX012"]),
        ("picture", "--mask-sp-padding --ulysses-degree 1", ["AX012"]),
        ("picture", "--no-mask-sp-padding", []),
        ("picture", "--mask-sp-padding --ulysses-degree 2", []),
        ("picture", "--mask-sp-padding --allgather-degree 2", []),
        ("picture", "--mask-sp-padding --set dit.sp_ring=1", ["AX012"]),
        ("two_dits", "--mask-sp-padding --set base.ring_degree=2", []),
        ("two_dits", "--mask-sp-padding", ["AX012"]),
    ],
)
def test_a_field_that_serves_an_axis_needs_one(
    model: str, line: str, codes: list[str], tmp_path: Path
) -> None:
    """No sequence is cut, so there is no padding to hide."""
    made = made_from(tmp_path, line, model=model)
    assert codes_of(made) == codes, text_of(made)
    for found in made.diagnostics:
        assert "has no effect without `sp_ring` or `sp_ulysses`" in found.message
        assert not found.is_error


def test_fields_that_serve_axes_are_fields_of_stages() -> None:
    """A name that is none would never be told of."""
    for declared in ALL.values():
        assert declared.serves_fields <= set(stage_fields(CATALOG))


def test_numbers_of_ranks_are_options_that_count_from_one() -> None:
    """Layouts are searched over them by name, and one is none."""
    for declared in ALL.values():
        defaults = plain_fields(declared.options())
        assert [defaults[name] for name in declared.sharing] == [1] * len(declared.sharing)


def test_a_policy_of_one_replica_is_told_with_its_key() -> None:
    """Nothing is routed, so nothing has to be hashed; with two replicas nothing is told."""
    axes = [axis("stage_replica", 1, Policy.HASH, key="user")]
    given = request(solo(), {"thinker": Said(axes=axes)})
    [found] = attempt(given).diagnostics
    assert (found.code, [note.message for note in found.notes]) == (
        "AX012",
        ["nor has `routing`"],
    )
    assert found.help == "give `stage_replica` a size above `1`, or leave `key` and `routing` out"
    two = [axis("stage_replica", 2, Policy.HASH, key="user")]
    assert attempt(request(solo(), {"thinker": Said(axes=two)})).diagnostics == ()


def test_what_a_model_says_itself_is_not_told() -> None:
    """Its own file may keep an option ready."""
    given = request(
        solo(ExecutionType.DIFFUSION),
        {"thinker": Said(axes=[axis("sp_ulysses", 1, mode="strict")])},
    )
    [stage] = given.settings.stages
    ulysses = stage.axes["sp_ulysses"]
    mode = ulysses.options["mode"]
    shipped = dataclasses.replace(mode, origin=dataclasses.replace(mode.origin, shipped=True))
    axes = {"sp_ulysses": dataclasses.replace(ulysses, options={"mode": shipped})}
    settings = dataclasses.replace(given.settings, stages=(dataclasses.replace(stage, axes=axes),))
    assert attempt(dataclasses.replace(given, settings=settings)).diagnostics == ()


@pytest.mark.parametrize(
    ("experts", "told"),
    [
        (0, "leave `enable_expert_parallel` out"),
        (8, "give `ep` a size above `1`, or leave `enable_expert_parallel` out"),
    ],
)
def test_more_ranks_are_no_remedy_without_experts(experts: int, told: str) -> None:
    """They would be refused for it."""
    said = {"thinker": Said(axes=[axis("ep", None)])}
    found = attempt(request(solo(), said, facts=StageFacts(num_experts=experts))).diagnostics
    assert [(each.code, each.help) for each in found] == [("AX012", told)]


@pytest.mark.parametrize(
    ("impossible", "told"),
    [
        ((), "give `sp_ring` or `sp_ulysses` a size above `1`, or leave `mask_sp_padding` out"),
        (("sp_ring",), "give `sp_ulysses` a size above `1`, or leave `mask_sp_padding` out"),
        (("sp_ring", "sp_ulysses"), "leave `mask_sp_padding` out"),
    ],
)
def test_an_axis_that_cannot_be_is_no_remedy(impossible: tuple[str, ...], told: str) -> None:
    """Of those that a field serves, the others are."""
    given = request(
        solo(ExecutionType.DIFFUSION), {"thinker": Said(fields={"mask_sp_padding": True})}
    )
    known = catalog(given.pipeline)
    never = {
        name: dataclasses.replace(ALL[name], is_possible=lambda _: False) for name in impossible
    }
    found = build(given, dataclasses.replace(known, axes={**known.axes, **never})).diagnostics
    assert [(each.code, each.help) for each in found] == [("AX012", told)]
