"""The screen of a plan, where the worked examples do not go."""

from __future__ import annotations

from dataclasses import replace

from stagemesh.config.settings import Settings, Sourced
from stagemesh.plan.build import build
from stagemesh.plan.devices import Devices
from stagemesh.plan.render import plan_summary, plan_text, table
from stagemesh.plan.values import ValuePlan
from stagemesh.spec.facts import StageFacts
from tests.plan.making import Said, axis, catalog, pipeline, place, planned, request, solo, stage


def test_memory_is_shown_by_what_takes_it() -> None:
    """For every stage that can be estimated."""
    devices = Devices(kind="H200", count=1, memory_bytes=2**20, imaginary=True)
    text = plan_text(
        planned(request(solo(), facts=StageFacts(weight_bytes=2**19), devices=devices))
    )
    assert text.startswith(
        "Plan for toy: 1 stage, 1 replica, 1 imaginary H200 device, 1 MiB each\n"
    )
    assert "memory  thinker  512 KiB a rank  weights 512 KiB, cache 2 B, workspace 1 B" in text


def test_a_device_of_unknown_size_has_none_on_the_screen() -> None:
    """Nothing is guessed."""
    text = plan_text(planned(request(solo())))
    assert text.startswith("Plan for toy: 1 stage, 1 replica, 1 cpu device\n")
    assert "thinker  toy     -     1 x 1             0        automatic" in text


def test_replicas_of_several_ranks_show_every_rank() -> None:
    """With its device and coordinates, and each axis with its groups."""
    axes = [axis("tp", 2), axis("stage_replica", 2), axis("ep", 2)]
    text = plan_text(
        planned(request(solo(), {"thinker": Said(axes=axes)}, facts=StageFacts(num_experts=2)))
    )
    assert "ranks  thinker[0] rank 0  device 0  tp=0\n" in text
    assert "       thinker[1] rank 1  device 3  tp=1\n" in text
    assert "groups  thinker tp  [0,1]\n        thinker ep  [0,1]\n" in text
    assert "stage_replica" not in text.split("groups")[1].split("\n\n")[0]


def test_values_are_shown_as_yaml_would_write_them() -> None:
    """Mappings, lists, `null` and booleans."""
    plan = planned(request(solo()))
    value = {"a": (1, None), "b": True}
    values = {"x": ValuePlan(value=value, layer="deploy", origin="f.yaml:1")}
    shown = plan_text(replace(plan, values=values))
    assert "values  x = {a: 1,null, b: true}  deploy  f.yaml:1\n" in shown


def test_the_summary_is_the_headline_and_the_stages() -> None:
    """For screens on which the plan is not the point."""
    plan = planned(request(pipeline(stage(0, "thinker"), stage(1, "talker"))))
    assert (
        plan_summary(plan)
        == """\
Plan for toy: 2 stages, 2 replicas, 2 cpu devices

stage    engine  axes  ranks x replicas  devices  from
thinker  toy     -     1 x 1             0        automatic
talker   toy     -     1 x 1             1        automatic
"""
    )


def test_a_place_is_named_once_for_all_that_it_gave() -> None:
    """Two axes of one line are one source."""
    here = place("one.yaml")
    given = request(solo())
    axes = {
        name: replace(axis(name, 1), size=Sourced(value=1, origin=here)) for name in ("tp", "dp")
    }
    said = replace(given.settings.stages[0], axes=axes)
    settings = Settings(fields={}, connectors={}, stages=(said,))
    plan = build(replace(given, settings=settings), catalog()).plan
    assert plan is not None
    assert plan_summary(plan).splitlines()[3].endswith("  one.yaml:1:3")


def test_a_table_cannot_change_the_terminal() -> None:
    """Names come from files."""
    assert list(table([("a\x1b", "b\tc")])) == ["a?  b c"]
    assert list(table([])) == []
