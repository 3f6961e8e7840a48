"""The whole plan: invariants, what can run, and what is missing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.plan.build import PlanRequest, build
from stagemesh.plan.devices import Devices
from stagemesh.plan.save import from_json, to_json
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import ExecutionType, NoOptions, PipelineConfig
from tests.examples import fewer
from tests.plan.making import Said, axis, catalog, codes, pipeline, planned, request, solo, stage

RANKS = ("dp", "pp", "tp", "cp")


def two_stages() -> PipelineConfig:
    """`thinker` feeds `talker`."""
    return pipeline(
        stage(0, "thinker", final_output=True, final_output_type="text"), stage(1, "talker")
    )


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, int]:
    """Sizes of some axes of a language stage."""
    names = draw(st.sets(st.sampled_from([*RANKS, "stage_replica", "stage_pp"])))
    sizes = {name: draw(st.integers(1, 3)) for name in sorted(names)}
    if draw(st.booleans()):
        sizes["ep"] = sizes.get("tp", 1) * sizes.get("dp", 1)
    return sizes


def asking(sizes: dict[str, int]) -> PlanRequest:
    """A request for that layout, for a model that allows every one of these."""
    facts = StageFacts(num_experts=36)
    said = {"thinker": Said(axes=[axis(name, size) for name, size in sizes.items()])}
    return request(two_stages(), said, facts=facts)


@fewer(2)
@given(layouts())
def test_ranks_and_devices_are_as_many_as_the_axes_say(sizes: dict[str, int]) -> None:
    """The world is the product of its axes, replicas come on top, and no two ranks share a slot."""
    thinker = planned(asking(sizes)).stages[0]
    world = 1
    for name in RANKS:
        world *= sizes.get(name, 1)
    assert thinker.world_size == world
    assert len(thinker.replicas) == sizes.get("stage_replica", 1)
    devices = [rank.device for replica in thinker.replicas for rank in replica.ranks]
    assert len(set(devices)) == len(devices) == world * len(thinker.replicas)


@fewer(2)
@given(layouts(), st.data())
def test_the_order_of_entries_does_not_change_the_plan(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    """Not even the order of its lists."""
    shuffled = dict(data.draw(st.permutations(list(sizes.items()))))
    assert to_json(planned(asking(shuffled))) == to_json(planned(asking(sizes)))


@fewer(2)
@given(layouts())
def test_file_to_plan_to_file_is_the_identity(sizes: dict[str, int]) -> None:
    """A saved plan is exactly the plan, and saving it again gives the same bytes."""
    plan = planned(asking(sizes))
    read = from_json(to_json(plan))
    assert read == plan
    assert not isinstance(read, tuple)
    assert to_json(read) == to_json(plan)


def test_axes_are_listed_in_mesh_order_and_then_by_name() -> None:
    """However they were written."""
    sizes = {"stage_replica": 2, "tp": 2, "ep": 4, "dp": 2}
    assert [each.axis for each in planned(asking(sizes)).stages[0].axes] == [
        "dp",
        "tp",
        "ep",
        "stage_replica",
    ]


def test_a_plan_with_an_engine_for_everything_can_run() -> None:
    """`tp` is executed by the engine, replicas by the runtime."""
    axes = [axis("tp", 2), axis("stage_replica", 2), axis("dp", 1)]
    plan = planned(request(solo(), {"thinker": Said(axes=axes)}))
    assert plan.not_runnable == ()


def test_a_window_on_the_edges_of_a_stage_can_run() -> None:
    """The runtime keeps it."""
    plan = planned(request(two_stages(), {"thinker": Said(axes=[axis("stage_pp", 1)])}))
    assert plan.not_runnable == ()


def test_an_axis_of_a_third_party_that_takes_no_ranks_is_not_carried_out() -> None:
    """The runtime knows windows alone."""
    asked = request(two_stages(), {"thinker": Said(axes=[axis("stage_pp", 1)])})
    installed = catalog(two_stages())
    other = replace(installed.axes["stage_pp"], options=NoOptions)
    plan = build(asked, replace(installed, axes={**installed.axes, "stage_pp": other})).plan
    assert plan is not None
    assert plan.not_runnable == ("`thinker`: the runtime does not execute `stage_pp` yet",)


def test_a_connector_that_only_plans_is_a_reason_against_running() -> None:
    """A third party may declare one before it has written it."""
    model = two_stages()
    installed = catalog(model)
    waiting = {
        name: replace(connector, planning_only="it is not written")
        for name, connector in installed.connectors.items()
    }
    plan = build(request(model), replace(installed, connectors=waiting)).plan
    assert plan is not None
    assert plan.not_runnable == ("`thinker` -> `talker`: it is not written",)


def test_a_stage_is_found_by_its_number_wherever_it_stands() -> None:
    """The order of the stages in a plan says nothing."""
    plan = planned(request(two_stages()))
    turned = replace(plan, stages=tuple(reversed(plan.stages)))
    assert [turned.stage(each.stage_id) for each in plan.stages] == list(plan.stages)


def test_every_reason_against_running_is_listed() -> None:
    """Planning goes on whatever is missing."""
    model = pipeline(stage(0, "thinker"), planning_only="it has no network")
    axes = [axis("pp", 2), axis("tp", 2), axis("stage_pp", 1)]
    devices = Devices(kind="H200", count=8, memory_bytes=None, imaginary=True)
    plan = planned(request(model, {"thinker": Said(axes=axes)}, devices=devices))
    assert plan.not_runnable == (
        "it has no network",
        "`thinker`: engine `toy` does not execute `pp` yet",
        "`thinker`: `stage_pp` bounds nothing where no stage is fed",
        "the `H200` devices are imaginary",
    )


def test_memory_that_cannot_be_checked_is_said() -> None:
    """Once for a device without size, else for each stage that nobody can estimate."""
    assert planned(request(solo())).skipped_checks == ("memory: that of a device is not known",)
    devices = Devices(kind="cuda", count=1, memory_bytes=100)
    plan = planned(request(two_stages(), devices=devices))
    assert plan.skipped_checks == (
        "memory of `thinker`: the checkpoint does not tell enough",
        "memory of `talker`: the checkpoint does not tell enough",
    )
    without_engine = planned(request(solo(ExecutionType.DIFFUSION), devices=devices))
    assert without_engine.skipped_checks == ()


def test_stages_share_a_device_until_its_memory_ends() -> None:
    """Two stages of 10 bytes fit into 26, not into 25: the toy engine adds three to each."""
    facts = StageFacts(weight_bytes=10)
    fits = Devices(kind="cuda", count=1, memory_bytes=26)
    assert len(planned(request(two_stages(), facts=facts, devices=fits)).stages) == 2
    small = Devices(kind="cuda", count=1, memory_bytes=25)
    assert codes(request(two_stages(), facts=facts, devices=small)) == ["PL015"]


def test_only_final_stages_name_a_modality() -> None:
    """What goes to the user is told by the pipeline."""
    plan = planned(request(two_stages()))
    assert [each.final_output_type for each in plan.stages] == ["text", None]
    assert plan.stage(1).input_sources == (0,)


def test_what_an_engine_has_against_its_arguments_is_told() -> None:
    """At the field where it was set, or without a place."""
    said = Said(fields={"max_num_seqs": 13})
    found = build(request(solo(), {"thinker": said}), catalog()).diagnostics
    assert [(each.code, each.origin is None) for each in found] == [
        ("TY001", False),
        ("TY002", True),
    ]
    assert found[0].message == "`thinker`: `13` is too many"
