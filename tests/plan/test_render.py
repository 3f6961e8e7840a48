"""The screen of a plan, where the screens of the command line do not go."""

from __future__ import annotations

from dataclasses import replace

from stagemesh.config.settings import Settings, Sourced
from stagemesh.plan.build import build
from stagemesh.plan.details import details_text
from stagemesh.plan.devices import Devices
from stagemesh.plan.render import plan_summary, plan_text
from stagemesh.plan.values import BindingPlan, EdgePlan, Plan, ValuePlan
from stagemesh.plan.words import value_text
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.patterns import Policy
from tests.plan.making import Said, axis, catalog, pipeline, place, planned, request, solo, stage

THREE = pipeline(stage(0, "thinker"), stage(1, "talker"), stage(2, "vocoder"))


def replicated() -> Plan:
    """Two replicas of two ranks, with an axis that lies over them."""
    axes = [axis("tp", 2), axis("stage_replica", 2, Policy.RANDOM), axis("ep", 2)]
    return planned(request(solo(), {"thinker": Said(axes=axes)}, facts=StageFacts(num_experts=2)))


def test_memory_is_shown_by_what_takes_it() -> None:
    """For every stage that can be estimated, and for the device that is the fullest."""
    devices = Devices(kind="H200", count=1, memory_bytes=2**20, imaginary=True)
    text = plan_text(
        planned(request(solo(), facts=StageFacts(weight_bytes=2**19), devices=devices))
    )
    assert text.startswith(
        "Plan for toy: 1 stage, 1 replica, 1 imaginary H200 device, 1 MiB each\n"
    )
    assert (
        "memory      thinker: 512 KiB a rank (weights 512 KiB, cache 2 B, workspace 1 B)\n"
        "            fullest device: 0, 512 KiB of 1 MiB\n" in text
    )


def test_a_device_of_unknown_size_has_none_on_the_screen() -> None:
    """Nothing is guessed."""
    text = plan_text(planned(request(solo())))
    assert text.startswith("Plan for toy: 1 stage, 1 replica, 1 cpu device\n")
    assert "thinker  toy     -     1 x 1             0        automatic" in text


def test_details_show_every_rank_and_group() -> None:
    """With device and coordinates; axes without ranks have no groups."""
    text = details_text(replicated())
    assert "ranks  thinker[0] rank 0  device 0  tp=0\n" in text
    assert "       thinker[1] rank 1  device 3  tp=1\n" in text
    assert "groups  thinker tp  [0,1]\n        thinker ep  [0,1]\n" in text
    assert "stage_replica" not in text.split("groups")[1].split("\n\n")[0]


def test_details_show_hooks_and_kernels() -> None:
    """With their targets, in the order in which they are bound."""
    plan = planned(request(solo()))
    bound = BindingPlan(
        kind="hook", name="cut", target="blocks.*", category="linear", priority=3, axis="tp"
    )
    [alone] = plan.stages
    text = details_text(replace(plan, stages=(replace(alone, bindings=(bound,)),)))
    assert text == "bindings  thinker tp  hook cut  blocks.*  linear 3\n\n"


def test_details_of_a_plan_without_any_are_empty() -> None:
    """No heading stands alone."""
    assert details_text(planned(request(solo()))) == ""


def test_values_are_shown_as_yaml_would_write_them() -> None:
    """Mappings, lists, `null` and booleans."""
    plan = planned(request(solo()))
    value = {"a": (1, None), "b": True}
    old = ValuePlan(value=False, layer="default", origin="default")
    values = {"x": ValuePlan(value=value, layer="deploy", origin="f.yaml:1", superseded=(old,))}
    shown = details_text(replace(plan, values=values))
    assert (
        shown == "values  x = {a: 1,null, b: true}  deploy: f.yaml:1; replaces false of default\n\n"
    )
    plain: list[object] = ["text", {}, ()]
    assert list(map(value_text, plain)) == ["text", "{}", "[]"]


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


def test_a_changed_stage_is_marked_and_the_mark_explained() -> None:
    """In the headline where it fits, else below it."""
    axes = {"thinker": Said(axes=[axis("tp", 1)])}
    plan = planned(request(pipeline(stage(0, "thinker"), stage(1, "talker")), axes))
    assert (
        plan_summary(plan)
        .splitlines()[0]
        .endswith("2 cpu devices   (~ changed from the model's default)")
    )
    lines = plan_summary(plan, 60).splitlines()
    assert lines[1] == "(~ changed from the model's default)"
    assert [line[:9] for line in lines[3:6]] == ["  stage  ", "~ thinker", "    from:"]
    assert "  talker " in plan_summary(plan, 60)


def test_many_devices_in_a_row_are_shown_by_their_ends() -> None:
    """Replicas stay apart, and two ids are no row."""
    axes = [axis("tp", 4), axis("stage_replica", 2)]
    eight = Devices(kind="cpu", count=12, memory_bytes=None)
    listed = {"thinker": Said(axes=axes, fields={"devices": "0,1,2,3,5,6,8,11"})}
    assert " 0-3 | 5,6,8,11 " in plan_summary(planned(request(solo(), listed, devices=eight)))


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


def test_edges_that_follow_each_other_are_one_line() -> None:
    """As long as they hand over alike; a fork begins another line."""
    plan = planned(request(THREE))

    def edge(source: int, target: int, *, chunked: bool) -> EdgePlan:
        return replace(plan.edges[0], source=source, target=target, chunked=chunked)

    def lines(*edges: EdgePlan) -> list[str]:
        text = plan_text(replace(plan, edges=edges))
        shown = [line for line in text.splitlines() if "->" in line]
        return [line.removeprefix("edges").strip() for line in shown]

    arrow = f"-{plan.edges[0].connector}->"
    assert lines(edge(0, 1, chunked=True), edge(1, 2, chunked=True)) == [
        f"thinker {arrow} talker {arrow} vocoder (by chunk)"
    ]
    assert lines(edge(0, 1, chunked=True), edge(1, 2, chunked=False)) == [
        f"thinker {arrow} talker (by chunk)",
        f"talker {arrow} vocoder (whole)",
    ]
    assert lines(edge(0, 1, chunked=False), edge(0, 2, chunked=False)) == [
        f"thinker {arrow} talker (whole)",
        f"thinker {arrow} vocoder (whole)",
    ]


def test_routing_is_shown_where_there_is_a_choice() -> None:
    """Of replicas by stage alone, of other axes with their name."""
    axes = [axis("dp", 2, Policy.RANDOM), axis("stage_replica", 2, Policy.LEAST_QUEUE)]
    text = plan_text(planned(request(solo(), {"thinker": Said(axes=axes)})))
    assert "routing      thinker dp: random\n             thinker: least_queue\n" in text
    alone = [axis("stage_replica", 1, Policy.RANDOM), axis("tp", 2)]
    assert "routing" not in plan_text(planned(request(solo(), {"thinker": Said(axes=alone)})))


def test_a_value_of_the_pipeline_that_was_changed_has_a_line() -> None:
    """No stage could be marked for it."""
    plan = planned(request(solo()))
    values = {
        "async_chunk": ValuePlan(value=False, layer="global", origin="--no-async-chunk"),
        "pipeline": ValuePlan(value="toy", layer="pipeline", origin="x", is_default=True),
    }
    text = plan_text(replace(plan, values=values))
    assert "changed      async_chunk = false (--no-async-chunk)\nnot checked" in text
