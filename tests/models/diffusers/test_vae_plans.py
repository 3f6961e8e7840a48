"""Plans of VAEs hold for the classes as they are installed, and wrong rules do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from torch import nn

from stagemesh.models._diffusers.plans.lookup import FILES, vae_plan
from stagemesh.parallel.vae.check import (
    Halo,
    halo_of,
    leaves,
    rehearse_vae,
    tiles_of,
    vae_bind_findings,
)
from stagemesh.spec.vae_plan import CausalCache, VaePlan, VaeRole, VaeRule
from tests.models.diffusers.tiny_vaes import STEPS, VAES, TinyVae

pytestmark = pytest.mark.slow


def plan_of(name: str) -> VaePlan:
    """The plan of a class that has one."""
    plan = vae_plan(name)
    assert plan is not None
    return plan


def rehearsed(plan: VaePlan, tiny: TinyVae) -> list[str]:
    """Codes of what is wrong with a plan, without running where the check finds something."""
    vae = tiny.make()

    def run() -> None:
        vae.decode(torch.empty(tiny.latent, device="meta"))
        vae.encode(torch.empty(tiny.picture, device="meta"))

    found = vae_bind_findings(plan, vae) or rehearse_vae(plan, vae, run)
    return [each.code for each in found]


@pytest.mark.parametrize("short", VAES)
def test_a_plan_holds_for_its_vae(short: str) -> None:
    """Every class inside has a rule, in both halves, and does what it says."""
    tiny = VAES[short]
    plan = plan_of(tiny.name)
    assert rehearsed(plan, tiny) == []
    assert tiles_of(plan, tiny.make()) == tiny.tiles


@pytest.mark.nightly
@pytest.mark.parametrize("name", FILES["vaes"])
def test_a_plan_holds_for_a_vae_of_its_usual_size(name: str) -> None:
    """Those with tiles alone as well."""
    usual = TinyVae(name=name, config={}, picture=(), latent=(), tiles=STEPS)
    assert vae_bind_findings(plan_of(name), usual.make()) == ()


@pytest.mark.parametrize(
    "short",
    [pytest.param(each, marks=[] if each == "kl" else pytest.mark.nightly) for each in VAES],
)
def test_a_rule_that_is_missing_or_wrong_is_caught(short: str) -> None:
    """Each class that the VAE has loses its rule, then is said to look at single pixels."""
    tiny = VAES[short]
    plan = plan_of(tiny.name)
    kinds = {type(each).__name__ for each in tiny.make().modules()}
    lists = (VaeRole.POINTWISE, VaeRole.COMPOSED)
    for index, rule in enumerate(plan.rules):
        if rule.kind not in kinds or not _is_reached(plan, tiny, rule):
            continue
        rest = (*plan.rules[:index], *plan.rules[index + 1 :])
        assert set(rehearsed(replace(plan, rules=rest), tiny)) == {"MD058"}, rule
        if rule.role not in lists and rule.kind != "Identity":
            wrong = replace(rule, role=VaeRole.POINTWISE)
            found = rehearsed(replace(plan, rules=(*rest, wrong)), tiny)
            assert set(found) == {"MD058"} or rule.role is VaeRole.GATHERED, rule


def _is_reached(plan: VaePlan, tiny: TinyVae, rule: VaeRule) -> bool:
    """Whether modules of a class are looked at; those inside of gathered ones are not."""
    vae = tiny.make()
    if rule.role in (VaeRole.COMPOSED, VaeRole.RESIZE):
        without = replace(plan, rules=tuple(each for each in plan.rules if each != rule))
        found = [at for half in plan.halves for at in leaves(without, getattr(vae, half), half)]
    else:
        found = [at for half in plan.halves for at in leaves(plan, getattr(vae, half), half)]
    return any(type(module).__name__ == rule.kind for _, module in found)


KL: Final = VAES["kl"]


@pytest.mark.parametrize(
    ("changes", "code", "message", "help_text"),
    [
        (
            {"tiles": replace(plan_of("AutoencoderKL").tiles, height="tile_height")},
            "MD051",
            "`AutoencoderKL` has no usable `tile_height` for its tiles",
            "name the attributes with sizes in pixels, and shares below 1",
        ),
        (
            {"tiles": replace(plan_of("AutoencoderKL").tiles, overlap_width="use_tiling")},
            "MD051",
            "`AutoencoderKL` has no usable `use_tiling` for its tiles",
            "name the attributes with sizes in pixels, and shares below 1",
        ),
        (
            {"halves": ("decode",)},
            "MD050",
            "`AutoencoderKL` has no module `decode`",
            "it has `encoder, decoder, quant_conv, post_quant_conv`",
        ),
        (
            {"cache": CausalCache.LIST, "counted": "CausalConv"},
            "MD058",
            "`AutoencoderKL` has no `CausalConv` for its cache to count",
            "name the class of its causal convolutions in `counted`",
        ),
        (
            {"rules": ()},
            None,
            "",
            "",
        ),
    ],
)
def test_what_a_vae_does_not_have_is_told(
    changes: dict[str, Any], code: str | None, message: str, help_text: str
) -> None:
    """With the plan, what was found and what to write; a plan of tiles alone has no rules."""
    found = vae_bind_findings(replace(plan_of("AutoencoderKL"), **changes), KL.make())
    wanted = [] if code is None else [(code, message, help_text)]
    assert [(each.code, each.message, each.help) for each in found] == wanted


def test_tiles_that_leave_rows_between_them_are_told() -> None:
    """They touch or overlap."""
    vae = VAES["wan"].make()
    vae.tile_sample_stride_height = 300
    [found] = vae_bind_findings(plan_of("AutoencoderKLWan"), vae)
    assert (found.code, found.message, found.help) == (
        "MD052",
        "tiles of `AutoencoderKLWan` are `256` along the height and `300` apart",
        "they touch or overlap",
    )


@pytest.mark.parametrize(
    ("module", "role", "reason"),
    [
        (nn.Conv2d(1, 1, 4), VaeRole.CONV, "its kernel `(4, 4)` is even"),
        (nn.Conv2d(1, 1, 3, dilation=2), VaeRole.CONV, "it is dilated, or goes round the picture"),
        (nn.SiLU(), VaeRole.CONV, "it has no convolution"),
        (nn.SiLU(), VaeRole.STATISTICS, "it is no `GroupNorm`"),
        (nn.SiLU(), VaeRole.PAD, "it is no `ZeroPad2d`"),
        (nn.Conv2d(1, 1, 3), VaeRole.DOWN, "it has no step"),
        (nn.Conv2d(1, 1, 3), VaeRole.POINTWISE, "it sees other rows"),
        (nn.GroupNorm(1, 1), VaeRole.POINTWISE, "it sees other rows"),
    ],
)
def test_a_module_that_its_role_does_not_fit_is_told(
    module: nn.Module, role: VaeRole, reason: str
) -> None:
    """By what it is, before it runs."""
    kind = type(module).__name__
    vae: Any = nn.Module()
    vae.half, vae.height = nn.ModuleList([module]), 8
    plan = replace(
        plan_of("AutoencoderKLWan"),
        tiles=replace(
            plan_of("AutoencoderKLWan").tiles,
            height="height",
            width="height",
            stride_height="height",
            stride_width="height",
        ),
        halves=("half",),
        cache=CausalCache.NONE,
        counted=None,
        rules=(
            VaeRule(kind=kind, role=role),
            VaeRule(kind="ModuleList", role=VaeRole.COMPOSED),
        ),
    )
    [found] = vae_bind_findings(plan, vae)
    message = f"`half.0` of `AutoencoderKLWan`, a `{kind}`, cannot be `{role.value}`"
    assert (found.code, found.message, found.help) == ("MD058", message, reason)


@pytest.mark.parametrize("short", VAES)
def test_a_halo_is_what_a_convolution_sees_and_no_more(short: str) -> None:
    """Rows beyond it do not change a band of the result, and its outermost rows do."""
    tiny = VAES[short]
    plan, vae = plan_of(tiny.name), tiny.make("cpu")
    seen: dict[tuple[object, ...], Halo] = {}
    for half in plan.halves:
        for _, module in leaves(plan, getattr(vae, half), half):
            role = plan.role(type(module).__name__)
            if role in (VaeRole.CONV, VaeRole.DOWN):
                _see(module, role, seen)
    assert Halo(above=1, below=1) in seen.values()


def _see(module: nn.Module, role: VaeRole, seen: dict[tuple[object, ...], Halo]) -> None:
    conv = next(each for each in module.modules() if isinstance(each, nn.Conv2d | nn.Conv3d))
    key = (type(module), conv.kernel_size, conv.stride)
    if key in seen:
        return
    halo = seen.setdefault(key, halo_of(module, role))
    step, rows = conv.stride[-2], 24
    shape = (1, conv.in_channels, *((3,) * (conv.weight.ndim - 4)), rows, 6)
    given = torch.randn(shape)
    first, last = 8, 16
    with torch.no_grad():
        whole = module(given)[..., first // step : last // step, :]
        for row in range(rows):
            changed = given.clone()
            changed[..., row, :] += 1
            band = module(changed)[..., first // step : last // step, :]
            is_seen = first - halo.above <= row < last + halo.below
            assert torch.equal(band, whole) != is_seen, (key, row)
