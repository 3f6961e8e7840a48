"""What is known about an axis: its declaration, and what others say about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from stagemesh.config.document import Source, read_yaml
from stagemesh.plan.explain_axis import AxisDoc, axis_text, explain_axis
from stagemesh.spec.axis import Axis
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.origin import Layer
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType
from tests.plan.making import Said, attempt, axis, catalog, request, solo

TOYS = catalog()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lamps:
    """Options of an axis."""

    number: int = 2
    """How many."""
    colour: str | None = None
    """Any."""


def known(name: str) -> AxisDoc:
    """What is known about an axis."""
    return explain_axis(TOYS.axes[name], TOYS, {"tensor_parallel_size": ("-tp",)})


def test_rules_between_axes_are_told_from_both_sides() -> None:
    """Whoever declares them, with the reason."""
    reason = TOYS.axes["hsdp"].excludes["ep"]
    assert f"not with `hsdp`: {reason}" in known("ep").pairs
    assert f"not with `ep`: {reason}" in known("hsdp").pairs
    sizes = "is tp x dp on `llm_ar`, `llm_generation` stages"
    assert f"its size {sizes}" in known("ep").pairs
    assert f"the size of `ep` {sizes}" in known("tp").pairs
    assert known("stage_replica").pairs == ()


def test_it_is_told_who_carries_an_axis_out() -> None:
    """Engines that execute it, the runtime for replicas, or nobody yet."""
    assert known("tp").executed_by == ("toy",)
    assert known("stage_replica").executed_by == ("the runtime",)
    assert known("cp").executed_by == ()
    assert "runs on  nothing yet: it can be planned" in axis_text(known("cp"))


def test_options_flags_and_fields_are_told() -> None:
    """As they are written."""
    mode = known("sp_ulysses").options[0]
    assert (mode.name, mode.default) == ("mode", "advanced_uaa")
    assert mode.type == "`advanced_uaa` or `strict`"
    assert known("tp").flags == ("-tp",)
    assert known("tp").deploy_fields[0] == "tensor_parallel_size"


def test_an_axis_is_shown_with_an_example() -> None:
    """What does not hold for it is left out."""
    plain = replace(
        TOYS.axes["stage_replica"], policies=(Policy.ROUND_ROBIN, Policy.RANDOM), options=Lamps
    )
    assert (
        axis_text(explain_axis(plain, TOYS, {}), 60)
        == """\
stage_replica: stage replicas: independent copies of a whole
stage

fits         diffusion, llm_ar, llm_generation
ranks        copies the stage; each copy takes devices of
             its own
routing      RouteByStage(round_robin) -> FanInByStage, by
             the runtime
policies     round_robin, random
options      number: whole number; default 2. How many.
             colour: text; not set by default. Any.
deploy file  num_replicas
runs on      the runtime

a strategy file with it:

    strategies:
      STAGE:  # of kind llm_ar
        - {axis: stage_replica, size: 2, routing: random}
"""
    )


@pytest.mark.parametrize("name", sorted(TOYS.axes))
def test_the_example_of_an_axis_can_be_planned(name: str) -> None:
    """On a stage of the kind that it names, whose network has whatever an axis may ask for."""
    document = read_yaml(known(name).example, Source(name="s.yaml", layer=Layer.STRATEGY), [])
    assert document is not None
    [kind] = [kind for kind in ExecutionType if f"of kind {kind.value}\n" in known(name).example]
    entries = document.value["strategies"]["STAGE"]  # type: ignore[index]
    axes = [axis(each["axis"], each["size"]) for each in entries]
    facts = StageFacts(num_experts=8, guidance=True, num_layers=4)
    result = attempt(request(solo(kind), {"thinker": Said(axes=axes)}, facts=facts))
    assert result.diagnostics == ()


def test_an_axis_without_carriers_of_its_own_kind_takes_any_that_fits() -> None:
    """The one whose ranks run fastest."""
    shared: Axis = replace(TOYS.axes["vae_pp"], fits=frozenset({ExecutionType.LLM_AR}))
    example = explain_axis(shared, TOYS, {}).example
    assert "{axis: cp, size: 2}\n    - {axis: vae_pp, size: 2}" in example
