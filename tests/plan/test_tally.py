"""How many values were given, by whom, and which command tells more about them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagemesh.config.settings import Settings, Sourced
from stagemesh.plan.render import plan_text
from stagemesh.plan.tally import defaults_of, tally
from stagemesh.plan.values import Plan, ValuePlan
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import ExecutionType
from tests.plan.making import Said, axis, planned, request, solo


def plan_of(layer: Layer, *, shipped: bool = False) -> Plan:
    """A plan to which a layer gives one value of the pipeline; nobody says more."""
    origin = Origin(layer=layer, source="here", shipped=shipped)
    value: object = 1
    fields = {"x": Sourced(value=value, origin=origin)}
    base = request(solo())
    settings = Settings(fields=fields, connectors={}, stages=base.settings.stages)
    return planned(replace(base, settings=settings))


@pytest.mark.parametrize(
    ("layer", "files", "command_line"),
    [
        (Layer.PIPELINE, 0, 0),
        (Layer.DEPLOY, 1, 0),
        (Layer.PLATFORM, 1, 0),
        (Layer.STRATEGY, 1, 0),
        (Layer.GLOBAL, 0, 1),
        (Layer.STAGE, 0, 1),
    ],
)
def test_a_value_counts_where_it_was_said(layer: Layer, files: int, command_line: int) -> None:
    """What the model says itself is a default, as is what nobody said."""
    counts = tally(plan_of(layer))
    unsaid = tally(planned(request(solo()))).defaults
    assert (counts.files, counts.command_line) == (files, command_line)
    assert counts.defaults == unsaid + (1 if files + command_line == 0 else 0)


def test_a_file_that_ships_with_the_model_is_its_default() -> None:
    """Though it is a deploy file like any other."""
    plan = plan_of(Layer.DEPLOY, shipped=True)
    assert tally(plan).files == 0
    assert "\nnothing is changed: 2 defaults. `stagemesh explain thinker`" in plan_text(plan)


def test_defaults_are_all_that_holds_and_nobody_gave() -> None:
    """Arguments of the engine, request parameters and options of axes; members count each."""
    said = {
        "thinker": Said(
            axes=[axis("sp_ulysses", 1)],
            fields={"engine": "picture"},
        )
    }
    [stage] = planned(request(solo(ExecutionType.DIFFUSION), said)).stages
    assert dict(defaults_of(stage))["axes.sp_ulysses.mode"] == "advanced_uaa"
    [stage] = planned(request(solo())).stages
    sampling = {"temperature": 1.0, "top_k": 5}
    given = ValuePlan(value=1.0, layer="deploy", origin="f.yaml:1")
    said_so = {"default_sampling_params.temperature": given, "max_num_seqs.of": given}
    told = replace(stage, sampling=sampling, values=said_so)
    assert dict(defaults_of(told)) == {"default_sampling_params.top_k": 5}


def test_the_screen_names_a_value_worth_explaining() -> None:
    """An axis before any other value, and a stage where nothing was changed."""
    fields = {"thinker": Said(fields={"max_num_seqs": 4})}
    text = plan_text(planned(request(solo(), fields)))
    assert "1 value from files, 0 from the command line, 0 defaults." in text
    assert "`stagemesh explain thinker.max_num_seqs` with" in text
    both = {"thinker": Said(axes=[axis("tp", 1)], fields={"max_num_seqs": 4})}
    assert "`stagemesh explain thinker.tp` with" in plan_text(planned(request(solo(), both)))
    option = {"thinker": Said(axes=[axis("stage_pp", None, unit="chunks")])}
    shown = plan_text(planned(request(solo(), option)))
    assert "`stagemesh explain thinker.stage_pp.unit` with" in shown
