"""Stages that share processes: who with whom, what they must agree in, and what is between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import Sourced
from stagemesh.connectors.in_process import CONNECTOR
from stagemesh.plan.colocate import parted, together
from stagemesh.plan.devices import Devices
from stagemesh.plan.diff import differences
from stagemesh.plan.pins import arrange
from stagemesh.plan.render import plan_text
from stagemesh.plan.report import Report
from stagemesh.plan.values import Plan
from stagemesh.plan.wish import Wish
from stagemesh.spec.diagnostic import Note
from stagemesh.spec.duplex import DuplexModel
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import PipelineConfig
from tests.plan import making
from tests.plan.rules import toys
from tests.plan.rules.toys import AR, GIB, TWO, Toy, chain, listed

THREE = chain(AR, AR, AR)
IN_PROCESS = dict.fromkeys(CONNECTOR.config_names, CONNECTOR)
WITH = {"colocate_with": 0}


@pytest.fixture(autouse=True)
def _connectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector inside a process is installed, too."""

    def catalog(*pipelines: PipelineConfig) -> Catalog:
        known = making.catalog(*pipelines)
        return replace(known, connectors={**known.connectors, **IN_PROCESS})

    monkeypatch.setattr(toys, "catalog", catalog)


def hosts(plan: Plan) -> list[int | None]:
    """In whose processes each stage runs."""
    return [stage.setup.host for stage in plan.stages]


def edges(plan: Plan) -> list[str]:
    """The connector of each edge."""
    return [edge.connector for edge in plan.edges]


@pytest.mark.parametrize(
    ("entries", "expected", "connectors"),
    [
        ([{}, {}, {}], [None, None, None], ["shared_memory", "shared_memory"]),
        ([{}, {}, {"colocate_with": "s1"}], [None, None, 1], ["shared_memory", "in_process"]),
        ([{}, {}, {"colocate_with": 1}], [None, None, 1], ["shared_memory", "in_process"]),
        ([{"colocate_with": "s2"}, {}, {}], [2, None, None], ["shared_memory", "shared_memory"]),
        ([{"colocate_with": 1}, {}, {}], [1, None, None], ["in_process", "shared_memory"]),
        ([{}, {"colocate_with": 0}, {"colocate_with": 1}], [None, 0, 0], ["in_process"] * 2),
        ([{}, {"colocate_with": "s1"}, {}], [None, None, None], ["shared_memory"] * 2),
        ([{}, {"colocate_with": None}, {}], [None, None, None], ["shared_memory"] * 2),
    ],
)
def test_a_stage_runs_in_the_processes_of_the_one_it_names(
    toy: Toy,
    entries: list[dict[str, object]],
    expected: list[int | None],
    connectors: list[str],
) -> None:
    """By name or number, on the same devices; a chain is one group; its own name is its own."""
    toy = replace(toy, model=THREE)
    plan = toy.plan(listed(*entries))
    assert hosts(plan) == expected
    assert edges(plan) == connectors
    assert plan.not_runnable == ()
    for stage in plan.stages:
        if stage.setup.host is not None:
            assert stage.replicas == plan.stage(stage.setup.host).replicas
    toy.keeps(plan)


def test_a_word_for_all_stages_makes_one_process(toy: Toy) -> None:
    """The one that is named is the host, and the plan says who runs where."""
    toy = replace(toy, model=THREE)
    plan = toy.plan({"colocate_with": "s1", **listed({}, {}, {})})
    assert hosts(plan) == [1, None, 1]
    assert "s0: runs in the processes of s1\n" in plan_text(plan)
    assert "s1: runs" not in plan_text(plan)
    toy.keeps(plan)
    told = [(each.where, each.what) for each in differences(toy.plan(), plan)]
    assert ("s0", "setup.host") in told
    assert ("s0", "colocate_with") in told


def test_replicas_of_guests_lie_with_those_of_the_host(toy: Toy) -> None:
    """Their memory adds up on the device, and each replica has its own."""
    facts = dict.fromkeys(("s0", "s1"), StageFacts(weight_bytes=60 * GIB))
    toy = replace(toy, model=TWO, devices="4xH100", facts=facts)
    [found] = toy.build(listed({}, WITH)).diagnostics
    assert (found.code, found.message) == (
        "PL015",
        "`s0` needs 120 GiB on `1` device, and `0` have room",
    )
    assert found.notes == (Note(message="that is with `s1`, which shares its processes"),)
    facts = dict.fromkeys(("s0", "s1"), StageFacts(weight_bytes=30 * GIB))
    toy = replace(toy, facts=facts)
    plan = toy.plan(listed({"num_replicas": 3}, {**WITH, "num_replicas": 3}))
    places = [
        [rank.device for each in stage.replicas for rank in each.ranks] for stage in plan.stages
    ]
    assert places == [[0, 1, 2], [0, 1, 2]]
    assert "s1: follows s0\n" in plan_text(plan)
    assert "fullest device: 0, 60 GiB of 74.51 GiB" in plan_text(plan)


@pytest.mark.parametrize(
    ("host", "guest", "expected"),
    [
        ({"devices": "1"}, {}, 1),
        ({}, {"devices": "1"}, 1),
        ({"devices": "1"}, {"devices": " 1"}, 1),
    ],
)
def test_devices_that_one_of_them_lists_are_those_of_both(
    toy: Toy, host: dict[str, object], guest: dict[str, object], expected: int
) -> None:
    """Whoever lists them."""
    toy = replace(toy, model=TWO, devices="2xH100")
    plan = toy.plan(listed(host, {**WITH, **guest}))
    assert [stage.replicas[0].ranks[0].device for stage in plan.stages] == [expected] * 2


def test_shares_add_up_on_a_device() -> None:
    """Each stage counts with its own share or bytes, as if it had a process of its own."""
    one = Wish(
        stage_id=0, stage="a", world=1, num_replicas=1, listed=None, rank_bytes=10, share=0.5
    )
    other = replace(one, stage_id=1, stage="b", share=None, rank_bytes=30)
    [both] = together([one, other], {1: 0})
    assert both.shares == 0.5
    assert both.need(100) == 80
    assert both.follows_share(100)
    assert together([one, other], {}) == [one, other]
    assert together([other], {1: 0}) == [other]
    assert together([one, replace(other, num_replicas=2)], {1: 0})[0] == one


DIFFERENT = "`s1` runs in the processes of `s0`, and their {} differ"


@pytest.mark.parametrize(
    ("host", "guest", "what"),
    [
        ({"num_replicas": 2}, {}, "numbers of replicas"),
        ({}, {"num_replicas": 2}, "numbers of replicas"),
        ({"devices": "0"}, {"devices": "1"}, "devices"),
        ({"env": {"A": "1"}}, {"env": {"A": "2"}}, "`env`"),
        ({"env": {"A": "1"}}, {}, "`env`"),
        ({"restart": "never"}, {}, "`restart`"),
        ({}, {"max_restarts": 7}, "`max_restarts`"),
    ],
)
def test_what_speaks_of_the_process_is_said_alike(
    toy: Toy, host: dict[str, object], guest: dict[str, object], what: str
) -> None:
    """Each difference is told once, at the word that makes them share it, with both values."""
    toy = replace(toy, model=TWO, devices="4xH100")
    found = toy.one(listed(host, {**WITH, **guest}))
    assert (found.code, found.message) == ("PL143", DIFFERENT.format(what))
    assert found.origin is not None
    assert [note.message.partition(":")[0] for note in found.notes] == ["`s1`", "`s0`"]


def test_values_of_variables_are_not_shown(toy: Toy) -> None:
    """A value may be a secret."""
    toy = replace(toy, model=TWO)
    found = toy.one(listed({"env": {"A": "hush", "B": "x"}}, WITH))
    assert [note.message for note in found.notes] == ["`s1`: none", "`s0`: A, B"]


@pytest.mark.parametrize(
    ("policy", "options", "is_alike"),
    [
        (Policy.HASH, {"key": "user"}, True),
        (Policy.HASH, {"key": "session"}, False),
        (Policy.LEAST_QUEUE, {}, False),
    ],
)
def test_replicas_are_chosen_for_all_stages_of_a_process(
    policy: Policy, options: dict[str, object], *, is_alike: bool
) -> None:
    """So the policy, and what belongs to it, is the same; without a connector it is the usual."""
    both = {
        "s0": making.Said(axes=[making.axis("stage_replica", 2, Policy.HASH, key="user")]),
        "s1": making.Said(axes=[making.axis("stage_replica", 2, policy, **options)], fields=WITH),
    }
    found = making.attempt(making.request(TWO, both))
    if is_alike:
        assert found.plan is not None
        assert edges(found.plan) == ["shared_memory"]
        return
    [told] = found.diagnostics
    assert (told.code, told.message) == ("PL143", DIFFERENT.format("ways of routing"))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            [{}, {"colocate_with": "s7"}, {}],
            ["PL140: `s1` is to share processes with `s7`, which is no stage"],
        ),
        (
            [{}, {"colocate_with": 7}, {}],
            ["PL140: `s1` is to share processes with `7`, which is no stage"],
        ),
        (
            [{"colocate_with": 1}, {"colocate_with": 0}, {}],
            ["PL141: `colocate_with` leads from `s0` back to `s0`: no stage is the host"],
        ),
        (
            [{"colocate_with": 1}, {"colocate_with": 2}, {"colocate_with": 1}],
            ["PL141: `colocate_with` leads from `s1` back to `s1`: no stage is the host"],
        ),
        (
            [{"colocate_with": 1}, {"colocate_with": "x"}, {}],
            ["PL140: `s1` is to share processes with `x`, which is no stage"],
        ),
    ],
)
def test_a_name_leads_to_a_host(
    toy: Toy, entries: list[dict[str, object]], expected: list[str]
) -> None:
    """A circle is told once, and whatever leads into it or nowhere is not told again."""
    assert replace(toy, model=THREE).found(listed(*entries)) == expected


def test_the_other_stages_of_a_circle_are_named(toy: Toy) -> None:
    """With the place of each."""
    found = replace(toy, model=TWO).one(listed({"colocate_with": 1}, {"colocate_with": 0}))
    assert [(note.message, note.origin is None) for note in found.notes] == [
        ("`s1` is part of the circle", False)
    ]


def test_a_stage_of_several_processes_shares_none(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as a host nor as a guest, whatever starts them."""
    toy = replace(toy, model=TWO, devices="4xH100")
    text = "PL142: `{}` cannot share its processes: {}"
    ranks = text.format("s0", "a replica of it has `2` ranks")
    assert toy.found(listed({"tensor_parallel_size": 2}, WITH)) == [ranks]
    both = [ranks, text.format("s1", "a replica of it has `2` ranks")]
    two = {"tensor_parallel_size": 2}
    assert toy.found(listed(two, {**WITH, **two})) == both
    apart = text.format("s1", "it is started by `mp`")
    assert toy.found(listed({}, {**WITH, "distributed_executor_backend": "mp"})) == [apart]
    assert toy.found(listed({}, {**WITH, "distributed_executor_backend": "uni"})) == []
    monkeypatch.setattr(making, "TOY", replace(making.TOY, owns_ranks=True))
    alone = "engine `toy` starts processes itself"
    assert toy.found(listed({}, WITH)) == [text.format(each, alone) for each in ("s0", "s1")]


def test_every_factor_of_the_ranks_of_a_stage_is_named_with_its_place(toy: Toy) -> None:
    """The first is where a host is told, which has no word about processes of its own."""
    two = {"tensor_parallel_size": 2}
    toy = replace(toy, model=TWO, devices="4xH100")
    host = toy.one(listed(two, WITH))
    assert [note.message for note in host.notes] == ["`tp` = `2` is set here"]
    assert host.origin is not None
    assert host.origin == host.notes[0].origin
    guest = toy.one(listed({}, {**WITH, **two}))
    assert guest.origin != guest.notes[0].origin


def test_mistakes_in_the_axes_of_a_stage_are_told_alone(toy: Toy) -> None:
    """What follows from them is not told as well."""
    toy = replace(toy, model=TWO, devices="4xH100")
    found = toy.found(listed({"tensor_parallel_size": 2, "cfg_parallel_size": 2}, WITH))
    assert all(not each.startswith("PL14") for each in found)
    assert found


@pytest.mark.parametrize(
    ("launch", "what"),
    [
        ({"worker_backend": "ray"}, "--worker-backend ray"),
        (
            {"stage_id": 0, "omni_master_address": "127.0.0.1", "omni_master_port": 1},
            "--stage-id 0",
        ),
    ],
)
def test_stages_that_share_a_process_are_started_here(
    toy: Toy, launch: dict[str, object], what: str
) -> None:
    """Ray and starts of single stages place each stage by itself."""
    toy = replace(toy, model=TWO, launch=launch)
    assert toy.found(listed({}, WITH)) == [f"PL144: stages cannot share processes with `{what}`"]


@pytest.mark.parametrize("section", [{}, {"session_mode": "duplex"}])
def test_sessions_are_placed_on_replicas_of_their_own(toy: Toy, section: dict[str, object]) -> None:
    """Which groups of them decide, and not the host."""
    duplex = DuplexModel(plugin="m:duplex", default_session_mode="duplex")
    toy = replace(toy, model=replace(TWO, duplex=duplex))
    found = [each for each in toy.found({**section, **listed({}, WITH)}) if "?" not in each]
    assert found == ["PL144: stages cannot share processes with `session_mode: duplex`"]


INSIDE = {"here": {"name": "InProcessConnector", "extra": {"window_bytes": 100_000}}}
SHARED = {"here": {"name": "SharedMemoryConnector"}}
EDGE = [{"from": 0, "to": 1, "connector": "here"}]


def test_a_connector_that_was_named_is_taken(toy: Toy) -> None:
    """Also one that copies; one that stays inside a process needs one."""
    toy = replace(toy, model=TWO)
    named = {"connectors": INSIDE, "edges": EDGE}
    plan = toy.plan({**named, **listed({}, WITH)})
    assert edges(plan) == ["in_process"]
    assert plan.edges[0].options == {"window_bytes": 100_000}
    toy.keeps(plan)
    plan = toy.plan({"connectors": SHARED, "edges": EDGE, **listed({}, WITH)})
    assert edges(plan) == ["shared_memory"]
    toy.keeps(plan)
    found = toy.one({**named, **listed({}, {})})
    assert (found.code, found.message) == (
        "PL145",
        "connector `here` does not leave a process, and `s0` and `s1` share none",
    )
    assert found.help == "write `colocate_with: s0` for `s1`, or name another connector"


def test_devices_that_ship_with_a_model_give_way_to_the_process() -> None:
    """Those of the host are taken, and the plan says why."""
    origin = Origin(layer=Layer.DEPLOY, source="shipped.yaml", shipped=True)
    wishes = [
        Wish(
            stage_id=number,
            stage=name,
            world=1,
            num_replicas=1,
            listed=Sourced(value=str(number), origin=origin),
            rank_bytes=None,
        )
        for number, name in enumerate("ab")
    ]
    shared = together(wishes, {1: 0})
    devices = Devices(kind="cpu", count=2, memory_bytes=None)
    placement = parted(arrange(shared, devices, Report()), shared)
    assert placement.replicas == {0: ((0,),), 1: ((0,),)}
    assert placement.moved == {1: "it runs in the processes of `a`"}
    alike = [replace(wish, listed=wishes[0].listed) for wish in wishes]
    alike = together(alike, {1: 0})
    assert parted(arrange(alike, devices, Report()), alike).moved == {}
    nowhere = replace(placement, replicas={})
    assert parted(nowhere, shared).replicas == {}
