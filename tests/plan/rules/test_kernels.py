"""Kernels: one spelling, known names, and one way to choose attention of a diffusion stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from stagemesh.plan.build import build
from stagemesh.plan.render import plan_text
from stagemesh.plan.setup import KernelsPlan
from stagemesh.spec.pipeline import PipelineConfig
from tests.plan.making import TOY, Said, catalog, request, solo
from tests.plan.rules.toys import DENOISER, MIXED, Toy, listed

CONFIG = "diffusion_attention_config"
SHORT = "diffusion_attention_backend"


def attention_of(toy: Toy, *deploys: Mapping[str, object], overrides: object = None) -> object:
    """The attention kernels of a diffusion stage."""
    given = {} if overrides is None else {"overrides": overrides}
    plan = replace(toy, model=DENOISER).plan(*deploys, **given)
    replace(toy, model=DENOISER).keeps(plan)
    return plan.stages[0].setup.kernels.attention


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, KernelsPlan()),
        ({"moe_backend": "auto"}, KernelsPlan(moe="auto")),
        ({"moe_backend": None}, KernelsPlan()),
        ({"moe_backend": "FlashInfer-CUTLASS"}, KernelsPlan(moe="flashinfer_cutlass")),
        ({"linear_backend": "Torch"}, KernelsPlan(linear="torch")),
        ({"attention_backend": "triton-attn"}, KernelsPlan(attention={"default": "TRITON_ATTN"})),
        ({"attention_backend": "AUTO"}, KernelsPlan(attention={"default": "auto"})),
    ],
)
def test_names_have_one_spelling(toy: Toy, entry: dict[str, object], expected: KernelsPlan) -> None:
    """Capitals and hyphens do not matter; `auto` is another thing than nothing."""
    plan = toy.plan(listed(entry))
    assert plan.stages[0].setup.kernels == expected
    toy.keeps(plan)


def test_the_documented_fragment_is_taken(toy: Toy) -> None:
    """An autoregressive stage beside a diffusion stage."""
    toy = replace(toy, model=MIXED)
    plan = toy.plan(
        listed(
            {"attention_backend": "TRITON_ATTN", "moe_backend": "auto", "linear_backend": "torch"},
            {CONFIG: {"default": "TORCH_SDPA"}, "moe_backend": "auto", "linear_backend": "torch"},
        )
    )
    first, second = (stage.setup.kernels for stage in plan.stages)
    assert first == KernelsPlan(attention={"default": "TRITON_ATTN"}, moe="auto", linear="torch")
    assert second == replace(first, attention={"default": "TORCH_SDPA"})
    toy.keeps(plan)
    text = plan_text(plan)
    assert "s0: kernels of attention: TRITON_ATTN\n" in text
    assert "s1: kernels of linear: torch\n" in text


@pytest.mark.parametrize(
    ("field", "value"), [("moe_backend", "tritn"), ("linear_backend", "tritn")]
)
def test_closed_sets_of_names_are_closed(toy: Toy, field: str, value: str) -> None:
    """The nearest name is in the help."""
    found = toy.one(listed({field: value}))
    assert (found.code, found.message) == ("PL095", f"`{field}` of `s0` does not take `tritn`")
    assert (found.help or "").startswith("did you mean `triton`?")


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        (None, {"attention_backend": "TRITN_ATTN"}),
        (DENOISER, {CONFIG: {"default": "TORCH_SPDA"}}),
        (DENOISER, {CONFIG: {"per_role": {"self": {"backend": "TORCH_SPDA", "quant": {}}}}}),
    ],
)
def test_open_sets_of_names_warn(
    toy: Toy, model: PipelineConfig | None, entry: dict[str, object]
) -> None:
    """A plug-in may know what nobody else does; a slip of the pen is told all the same."""
    toy = toy if model is None else replace(toy, model=model)
    [found] = toy.build(listed(entry)).diagnostics
    assert (found.code, found.is_error) == ("PL096", False)
    assert found.message.startswith("no engine is known to have the kernels `T")
    assert (found.help or "").startswith("did you mean `T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKernels:
    """Options of an engine with kernels of its own."""

    linear_backend: str = "own"
    """Not checked by anybody else."""


def test_an_engine_that_declares_the_field_knows_its_names() -> None:
    """Its declaration has been asked already."""
    known = replace(catalog(), engines={"toy": replace(TOY, options=OwnKernels)})
    given = request(solo(), {"thinker": Said(fields={"linear_backend": "special"})})
    plan = build(given, known).plan
    assert plan is not None
    assert plan.stages[0].setup.kernels.linear == "special"


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"defualt": "TORCH_SDPA"}, "defualt"),
        ({"default": 1}, "default"),
        ({"default": {"quant": "fp8"}}, "default"),
        ({"per_role": "TORCH_SDPA"}, "per_role"),
        ({"per_role": {"self": 1}}, "per_role.self"),
    ],
)
def test_the_structured_choice_has_a_form(toy: Toy, config: dict[str, object], path: str) -> None:
    """Each place at fault is named."""
    found = replace(toy, model=DENOISER).one(listed({CONFIG: config}))
    assert (found.code, found.message) == ("PL089", f"`{CONFIG}.{path}` of `s0` chooses no kernels")


def test_roles_have_their_own_kernels(toy: Toy) -> None:
    """Names are spelt inside, options are handed on; `null` leaves a role to the default."""
    config = {
        "default": "flash-attn",
        "per_role": {"self": {"backend": "sage_attn", "quant": {"method": "fp8"}}, "cross": None},
    }
    assert attention_of(toy, listed({CONFIG: config})) == {
        "default": "FLASH_ATTN",
        "per_role": {"self": {"backend": "SAGE_ATTN", "quant": {"method": "fp8"}}},
    }
    plan = replace(toy, model=DENOISER).plan(listed({CONFIG: config}))
    assert "kernels of attention self: SAGE_ATTN\n" in plan_text(plan)


def test_the_short_form_means_the_default_and_is_deprecated(toy: Toy) -> None:
    """Roles stay as they are."""
    deploy = listed({SHORT: "torch_sdpa", CONFIG: {"per_role": {"self": "FLASH_ATTN"}}})
    expected = {"default": "TORCH_SDPA", "per_role": {"self": "FLASH_ATTN"}}
    assert attention_of(toy, deploy) == expected
    assert attention_of(toy, listed({SHORT: "torch_sdpa"})) == {"default": "TORCH_SDPA"}
    assert attention_of(toy, listed({SHORT: None})) == {}
    found = replace(toy, model=DENOISER).one(listed({SHORT: "torch_sdpa"}))
    assert (found.code, found.is_error) == ("PL099", False)
    assert found.help == "write `diffusion_attention_config: {default: TORCH_SDPA}`"


def test_the_short_form_and_the_default_contradict_each_other_in_one_file(toy: Toy) -> None:
    """The help says which to keep."""
    toy = replace(toy, model=DENOISER)
    found = toy.found(listed({SHORT: "TORCH_SDPA", CONFIG: {"default": "FLASH_ATTN"}}))
    assert found == [
        "PL097: `s0` has `diffusion_attention_backend` and `diffusion_attention_config.default`",
    ]


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (
            {CONFIG: {"default": "FLASH_ATTN", "per_role": {"self": "SAGE_ATTN"}}},
            {SHORT: "TORCH_SDPA"},
            {"default": "TORCH_SDPA", "per_role": {"self": "SAGE_ATTN"}},
        ),
        ({SHORT: "TORCH_SDPA"}, {CONFIG: {"default": "FLASH_ATTN"}}, {"default": "FLASH_ATTN"}),
    ],
)
def test_t62_the_higher_layer_decides_and_roles_stay(
    toy: Toy, lower: dict[str, object], upper: dict[str, object], expected: dict[str, object]
) -> None:
    """A file on top of another warns; the command line needs not, it is there to replace."""
    assert attention_of(toy, listed(lower), listed(upper)) == expected
    assert attention_of(toy, listed(lower), overrides={"s0": upper}) == expected
    winner = next(iter(upper))
    name = winner if winner == SHORT else f"{CONFIG}.default"
    (found,) = replace(toy, model=DENOISER).found(listed(lower), listed(upper))
    assert found == f"PL098?: `{name}` of `s0` replaces what a lower layer says"


@pytest.mark.parametrize(
    ("model", "entry", "instead"),
    [
        (None, {SHORT: "TORCH_SDPA"}, "write `attention_backend`"),
        (None, {CONFIG: {"default": "TORCH_SDPA"}}, "write `attention_backend`"),
        (
            DENOISER,
            {"attention_backend": "X"},
            "write `diffusion_attention_config: {default: ...}`",
        ),
    ],
)
def test_each_kind_of_stage_has_its_own_field(
    toy: Toy, model: PipelineConfig | None, entry: dict[str, object], instead: str
) -> None:
    """The help names it."""
    toy = toy if model is None else replace(toy, model=model)
    found = toy.one(listed(entry))
    assert (found.code, found.help) == ("PL027", instead)


def test_kernels_are_chosen_stage_by_stage(toy: Toy) -> None:
    """At the root of a file they would mean nothing."""
    for name in ("attention_backend", "moe_backend", "linear_backend"):
        assert toy.found({name: "auto"}) == [f"CF024: `{name}` is a field of a stage"]
