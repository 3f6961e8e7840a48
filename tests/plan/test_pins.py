"""Devices that ship with a model hold where they can, and give way to the user's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.settings import Sourced
from stagemesh.plan.details import details_text
from stagemesh.plan.diff import differences
from stagemesh.plan.explain_value import explain_value
from stagemesh.plan.make import Made, make
from stagemesh.plan.pins import arrange
from stagemesh.plan.place import Placement
from stagemesh.plan.render import devices_text, plan_text
from stagemesh.plan.report import Report
from stagemesh.plan.save import from_json, to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.subject import record_of, subject_of
from stagemesh.plan.values import Plan, ValuePlan
from stagemesh.plan.wish import Wish
from stagemesh.spec.origin import Layer, Origin
from tests.plan.test_place import cards, wish

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
SPEECH: Final = FIXTURES / "qwen2_5_omni"
HOST: Final = Host(kind="cpu", count=None, memory_bytes=None)
OWN: Final = Origin(layer=Layer.DEPLOY, source="toy.yaml", line=3, shipped=True)
TWO: Final = "`s0` lists `1` device and needs `2`: `2` ranks"
REASON: Final = "`thinker` lists `1` device and needs `2`: `2` ranks"
PAIR: Final = {"strategies": {"thinker": [{"axis": "tp", "size": 2}]}}


def shipped(stage_id: int, listed: str, **given: Any) -> Wish:  # noqa: ANN401  any of `wish`
    """What a stage needs whose devices ship with the model."""
    more = {name: given.pop(name) for name in ("share", "repeats") if name in given}
    found = wish(stage_id, **given)
    return replace(found, listed=Sourced(value=listed, origin=OWN), **more)


def arranged(count: int | None, wishes: Sequence[Wish], memory: int | None = None) -> Placement:
    """Place what must fit."""
    report = Report()
    found = arrange(wishes, cards(count, memory), report)
    assert report.diagnostics == ()
    return found


def refused(count: int, wishes: Sequence[Wish], memory: int | None = None) -> list[str]:
    """Place what must not fit, and return what is told."""
    report = Report()
    arrange(wishes, cards(count, memory), report)
    return [f"{each.code} {each.message}" for each in report.diagnostics]


def test_where_they_can_be_had_they_hold() -> None:
    """Though stages would share no device if the planner had chosen."""
    found = arranged(4, [shipped(0, "3"), shipped(1, "3"), shipped(2, "0", replicas=2)])
    assert found.replicas == {0: ((3,),), 1: ((3,),), 2: ((0,), (1,))}
    assert found.moved == {}


@pytest.mark.parametrize(
    ("count", "wishes", "memory", "replicas", "moved"),
    [
        pytest.param(
            4,
            [shipped(0, "0", world=2), shipped(1, "1"), shipped(2, "0")],
            None,
            {0: ((0, 1),), 1: ((2,),), 2: ((3,),)},
            {0: TWO, 1: TWO, 2: TWO},
            id="another number of ranks",
        ),
        pytest.param(
            None,
            [shipped(0, "0,1"), shipped(1, "2")],
            None,
            {0: ((0,),), 1: ((1,),)},
            dict.fromkeys((0, 1), "`s0` lists `2` devices and needs `1`: `1` rank"),
            id="fewer ranks",
        ),
        pytest.param(
            3,
            [shipped(0, "0", replicas=2, repeats=False), shipped(1, "1")],
            None,
            {0: ((0,), (1,)), 1: ((2,),)},
            dict.fromkeys((0, 1), "`s0` lists `1` device and needs `2`: `2` replicas of `1` rank"),
            id="copies that the model does not have",
        ),
        pytest.param(
            4,
            [shipped(0, "0"), shipped(1, "1", world=2), wish(2, listed="1")],
            None,
            {0: ((0,),), 1: ((2, 3),), 2: ((1,),)},
            {1: "`s1` lists `1` device and needs `2`: `2` ranks"},
            id="devices of the user stay, and what lies as it shall is not told",
        ),
        pytest.param(
            1,
            [shipped(0, "0"), shipped(1, "1")],
            None,
            {0: ((0,),), 1: ((0,),)},
            {1: "`s1` asks for device `1`, and there are `1`"},
            id="a device that is not there",
        ),
        pytest.param(
            2,
            [shipped(0, "0", need=3), shipped(1, "0", need=3)],
            4,
            {0: ((0,),), 1: ((1,),)},
            {1: "device `0` has 4 B, and its stages need 6 B"},
            id="no room for bytes",
        ),
        pytest.param(
            2,
            [shipped(0, "1", share=0.6), shipped(1, "1", share=0.6)],
            None,
            {0: ((0,),), 1: ((1,),)},
            {0: "the ranks on device `1` may use `1.2` of its memory together"},
            id="no room for shares",
        ),
        pytest.param(
            2,
            [wish(0, world=2, need=3), shipped(1, "1", need=2)],
            4,
            None,
            None,
            id="no room either way",
        ),
    ],
)
def test_else_they_give_way_together(
    count: int | None,
    wishes: Sequence[Wish],
    memory: int | None,
    replicas: Mapping[int, object] | None,
    moved: Mapping[int, str] | None,
) -> None:
    """All stages are placed as if nothing were listed; those that lie elsewhere know why."""
    if replicas is None or moved is None:
        assert count is not None
        assert [each[:5] for each in refused(count, wishes, memory)] == ["PL015"]
        return
    found = arranged(count, wishes, memory)
    assert (found.replicas, found.moved) == (replicas, moved)


def test_devices_of_the_user_bind() -> None:
    """Beside others that give way, and whatever those say."""
    bound = wish(0, world=2, listed="0")
    told = [f"PL010 {TWO}"]
    assert refused(4, [bound, shipped(1, "1")]) == told
    assert refused(4, [bound, shipped(1, "1", world=2)]) == told


def test_what_fails_either_way_is_told_of_what_was_listed() -> None:
    """Where each device is there: the model's own file is not at fault."""
    crowd = [shipped(0, "0", need=3), shipped(1, "0", need=3)]
    assert refused(1, crowd, 4) == ["PL016 device `0` has 4 B, and its stages need 6 B"]
    absent = [shipped(0, "0", need=3), shipped(1, "1", need=3)]
    assert refused(1, absent, 4) == ["PL015 `s1` needs 3 B on `1` device, and `0` have room"]


# --- plans of a model that ships ------------------------------------------------------------------


def made(**given: Any) -> Made:  # noqa: ANN401  any field of the inputs
    """Plan a model whose file puts the talker on device 1, the other stages on device 0."""
    return make(PlanInputs(model=str(SPEECH), **{"devices": "4xH200", **given}), HOST)


def planned(**given: Any) -> Plan:  # noqa: ANN401  any field of the inputs
    """Plan what must succeed without a diagnostic."""
    found = made(**given)
    assert found.diagnostics == ()
    assert found.plan is not None
    return found.plan


def places(plan: Plan) -> list[str]:
    """Where the stages lie."""
    return [devices_text(stage) for stage in plan.stages]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["0", "1", "0"]),
        ({"strategy_config": PAIR}, ["0,1", "2", "3"]),
        ({"set_values": ("thinker.tp=2",)}, ["0,1", "2", "3"]),
        ({"stage_overrides": {"thinker": {"tensor_parallel_size": 2}}}, ["0,1", "2", "3"]),
        ({"set_values": ("talker.num_replicas=2",)}, ["0", "1 | 2", "3"]),
        ({"set_values": ("code2wav.num_replicas=2",)}, ["0", "1", "2 | 3"]),
        ({"set_values": ("talker.tp=1",)}, ["0", "1", "0"]),
        ({"set_values": ("thinker.max_num_seqs=2",)}, ["0", "1", "0"]),
        ({"strategy_config": PAIR, "set_values": ("thinker.devices=2,3",)}, ["2,3", "1", "0"]),
        ({"strategy_config": PAIR, "set_values": ("talker.devices=0",)}, ["1,2", "0", "3"]),
        ({"strategy_config": PAIR, "deploy_config": "qwen2_5_omni"}, ["0,1", "2", "3"]),
        (
            {"strategy_config": PAIR, "deploy_config": {"base_config": "qwen2_5_omni"}},
            ["0,1", "2", "3"],
        ),
        ({"devices": "1xH200"}, ["0", "0", "0"]),
    ],
)
def test_the_users_layout_decides(given: Mapping[str, Any], expected: list[str]) -> None:
    """However it is given; devices that the user lists stay where they are."""
    assert places(planned(**given)) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"set_values": ("thinker.devices=0",)},
        {"stage_overrides": {"thinker": {"devices": "0"}}},
        {
            "deploy_config": {
                "base_config": "qwen2_5_omni",
                "stages": [{"stage_id": 0, "devices": "0"}],
            }
        },
    ],
)
def test_the_users_own_devices_bind(given: Mapping[str, Any]) -> None:
    """The same list that ships with the model, said by somebody else."""
    found = made(strategy_config=PAIR, **given)
    assert [(each.code, each.message) for each in found.diagnostics] == [("PL010", REASON)]


@pytest.fixture
def plan() -> Plan:
    """A plan whose stages do not lie where the model's file puts them."""
    return planned(strategy_config=PAIR)


def test_the_screens_say_so(plan: Plan) -> None:
    """Once at a glance, and beside the values."""
    screen = plan_text(plan)
    told = f"thinker, talker, code2wav: automatic; the model's own `devices` give way: {REASON}"
    assert f"placement    {told}\n" in screen
    assert "~ talker    ar          -     1 x 1             2        placement\n" in screen
    assert "1 value from files, 0 from the command line" in screen
    row = f"placement: 1 of qwen2_5_omni.yaml:8:14 gives way: {REASON}\n"
    assert f"talker.devices = automatic    {row}" in details_text(plan)


def test_where_nothing_is_given_nothing_is_said_to_be_unchanged() -> None:
    """Fewer devices alone move a stage."""
    told = "nothing is given: 22 defaults. `stagemesh explain talker.devices`"
    assert told in plan_text(planned(devices="1xH200"))
    assert "nothing is changed: " in plan_text(planned())


def test_the_data_says_so(plan: Plan) -> None:
    """With what gave way, and where that stands."""
    old = ValuePlan(value="1", layer="deploy", origin="qwen2_5_omni.yaml:8:14", is_default=True)
    word = plan.stages[1].values["devices"]
    assert word == ValuePlan(
        value=None, layer="placement", origin=REASON, superseded=(old,), clears=True
    )
    assert from_json(to_json(plan), "plan.json") == plan


def test_everything_that_was_listed_below_is_kept() -> None:
    """A base file that ships has devices as well."""
    found = make(
        PlanInputs(
            model=str(FIXTURES / "qwen3_tts"),
            deploy_config="qwen3_tts_high_concurrency",
            devices="4xH200",
            set_values=("code2wav.num_replicas=2",),
        ),
        HOST,
    )
    assert found.plan is not None
    below = found.plan.stages[1].values["devices"].superseded
    assert [(each.value, each.superseded) for each in below] == [("1", ()), ("0", ())]


def test_shares_without_room_either_way_are_told_of_what_was_listed() -> None:
    """By the rule about shares, at the value that is too large."""
    inputs = PlanInputs(
        model=str(FIXTURES / "qwen3_omni_moe"),
        devices="2xH200",
        set_values=("thinker.gpu_memory_utilization=0.95", "talker.gpu_memory_utilization=0.95"),
    )
    told = "the ranks on device `1` may use `1.05` of its memory together"
    assert [(each.code, each.message) for each in make(inputs, HOST).diagnostics] == [
        ("PL110", told)
    ]
    plan = make(replace(inputs, devices="3xH200"), HOST).plan
    assert plan is not None
    assert places(plan) == ["0", "1", "2"]
    assert plan.stages[2].values["devices"].origin == told


def test_explain_tells_what_gives_way() -> None:
    """Below where the stage lies now, with the reason."""
    found = made(strategy_config=PAIR)
    record = record_of(found)
    assert record is not None
    catalog = Catalog.installed()
    story = explain_value(subject_of("talker.devices", record, catalog), record, found, catalog)
    assert story is not None
    assert story.value == "2"
    words = [(word.layer, word.place, word.value, word.verdict) for word in story.words]
    assert words == [
        ("placement", f"automatic: {REASON}", "2", "wins"),
        (
            "deploy file, as the model ships it",
            "qwen2_5_omni.yaml:8:14",
            "1",
            "gives way",
        ),
        ("default", "default", None, "overridden"),
    ]


def test_a_difference_is_one_of_places(plan: Plan) -> None:
    """What was moved is told of every stage; the same layout in other words is none."""
    found = differences(planned(), plan)
    moved = [(each.where, each.before, each.after) for each in found if each.what == "devices"]
    assert moved == [("thinker", "0", "0,1"), ("talker", "1", "2"), ("code2wav", "0", "3")]
    freed = {name: {"devices": None} for name in ("thinker", "talker", "code2wav")}
    assert differences(planned(strategy_config=PAIR, stage_overrides=freed), plan) == ()


def test_a_saved_plan_is_planned_again(plan: Plan, tmp_path: Path) -> None:
    """To the same places, with the same words."""
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    again = open_saved(file, HOST)
    assert (again.plan, again.diagnostics) == (plan, ())
