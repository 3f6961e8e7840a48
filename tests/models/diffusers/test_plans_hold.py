"""The plans that ship hold for the classes as they are installed, and a wrong one does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

from stagemesh.models._diffusers.plans.imported import imported
from stagemesh.models._diffusers.plans.lookup import FILES, all_plans, model_plan, vae_plan
from stagemesh.parallel.modules import matching
from stagemesh.parallel.rehearsal import Ranks, rehearse
from stagemesh.parallel.tp_cuts import parameter_cuts
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.model_plan import ModelPlan
from stagemesh.spec.plan_findings import plan_findings, vae_findings
from tests.models.diffusers.mutations import PARTS, mutations, vars_of
from tests.models.diffusers.tiny import TINY

pytestmark = pytest.mark.slow

BY_CLASS: Final[defaultdict[str, list[str]]] = defaultdict(list)
for _short, _tiny in TINY.items():
    BY_CLASS[_tiny.name].append(_short)
SAMPLE: Final = 37
"""Every so many mutations are run in each test of all."""
BOTH: Final = Ranks(tp=2, sp=2)


def plan_of(name: str) -> ModelPlan:
    """The plan of a class that has one."""
    plan = model_plan(name)
    assert plan is not None
    return plan


def told(plan: ModelPlan, ranks: Ranks = BOTH) -> tuple[Diagnostic, ...]:
    """What any example of the class has against a plan; a rule that none has is told as well."""
    found = plan_findings(plan)
    for short in BY_CLASS[plan.name]:
        found = found or rehearse(plan, TINY[short].on("meta"), ranks)
    return found


def test_every_plan_is_listed_by_its_file_and_sound() -> None:
    """A class is looked up without loading the plans of others."""
    for plan in all_plans():
        if isinstance(plan, ModelPlan):
            assert plan_findings(plan) == ()
            assert model_plan(plan.name) is plan
        else:
            assert vae_findings(plan) == ()
            assert vae_plan(plan.name) is plan
    assert [plan.name for plan in all_plans()] == [
        name for names in FILES.values() for name in names
    ]
    assert model_plan("UNet2DConditionModel") is None
    assert vae_plan("FluxTransformer2DModel") is None


def test_every_plan_of_a_network_has_an_example() -> None:
    """And each of its rules is about a module of one of them, the optional ones too."""
    networks = [plan for plan in all_plans() if isinstance(plan, ModelPlan)]
    assert {plan.name for plan in networks} == set(BY_CLASS)
    for plan in networks:
        made = [TINY[short].on("meta").network() for short in BY_CLASS[plan.name]]
        for part in PARTS:
            for entry in vars_of(plan, part):
                assert any(matching(each, entry.module) for each in made), entry


@pytest.mark.parametrize("short", TINY)
def test_a_plan_holds_for_its_class(short: str) -> None:
    """Under two ranks of each kind, with uneven tokens."""
    tiny = TINY[short]
    assert rehearse(plan_of(tiny.name), tiny.on("meta"), BOTH) == ()


@pytest.mark.nightly
@pytest.mark.parametrize("short", TINY)
@pytest.mark.parametrize(("tp", "sp"), [(1, 1), (4, 1), (1, 3), (4, 4)])
def test_a_plan_holds_for_other_numbers_of_ranks(short: str, tp: int, sp: int) -> None:
    """More ranks than key heads included."""
    tiny = TINY[short]
    assert rehearse(plan_of(tiny.name), tiny.on("meta"), Ranks(tp=tp, sp=sp)) == ()


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_hold_each_parameter_once(ranks: int) -> None:
    """Pieces that are copied are the exception: several ranks have the same."""
    for name, (short, *_) in BY_CLASS.items():
        network = TINY[short].on("meta").network()
        cuts = [parameter_cuts(plan_of(name), network, ranks, rank) for rank in range(ranks)]
        sizes = {key: value.shape for key, value in network.named_parameters()}
        assert cuts[0]
        for key, first in cuts[0].items():
            held = [each for cut in cuts for each in cut[key].ranges]
            places = {place for start, length in held for place in range(start, start + length)}
            assert places == set(range(sizes[key][first.dim])), key
            if "k_proj" not in key and "v_proj" not in key:
                assert sum(length for _, length in held) == len(places), key


def _every(step: int) -> Iterator[tuple[str, ModelPlan]]:
    every = ((name, *each) for name in BY_CLASS for each in mutations(plan_of(name)))
    for index, (name, what, plan) in enumerate(every):
        if index % step == 0:
            yield f"{name} {what}", plan


def test_a_mistake_in_a_plan_is_caught_and_named() -> None:
    """A sample of all mistakes; the finding names the plan."""
    for what, plan in _every(SAMPLE):
        found = told(plan)
        assert found, what
        assert all(str(each.origin) == f"plan of `{plan.name}`" for each in found)


@pytest.mark.nightly
def test_every_mistake_in_a_plan_is_caught() -> None:
    """A wrong path, dimension, style or role of any entry of any plan."""
    assert [what for what, plan in _every(1) if not told(plan)] == []


def test_what_the_libraries_declare_is_in_the_plans() -> None:
    """Rules as they are; tokens too, but for a prompt that stays whole where keys are."""
    for name in BY_CLASS:
        try:
            theirs = imported(name)
        except KeyError:
            continue
        ours = plan_of(name)
        rules = {(each.module, each.style, each.blocks) for each in ours.tp}
        assert {(each.module, each.style, each.blocks) for each in theirs.tp} <= rules
        cuts = {(each.module, each.value, each.dim) for each in ours.splits}
        missing = {(each.module, each.value, each.dim) for each in theirs.splits} - cuts
        assert {value for _, value, _ in missing} <= {
            "encoder_hidden_states",
            "encoder_attention_mask",
        }
        if missing:
            assert ours.whole == ("txt",)
        assert {(each.module, each.dim) for each in theirs.gathers} <= {
            (each.module, each.dim) for each in ours.gathers
        }
