"""Placement: listed devices bind, the rest is spread."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagemesh.config.settings import Sourced
from stagemesh.plan.devices import Devices
from stagemesh.plan.place import Placement, place
from stagemesh.plan.report import Report
from stagemesh.plan.wish import Wish
from stagemesh.plan.words import size_text
from stagemesh.spec.diagnostic import Diagnostic, Note
from tests.plan.making import place as somewhere


def wish(
    stage_id: int = 0,
    *,
    world: int = 1,
    replicas: int = 1,
    listed: str | None = None,
    need: int | None = None,
) -> Wish:
    """What stage `s<id>` needs."""
    return Wish(
        stage_id=stage_id,
        stage=f"s{stage_id}",
        world=world,
        num_replicas=replicas,
        listed=None if listed is None else Sourced(value=listed, origin=somewhere()),
        rank_bytes=need,
    )


def cards(count: int | None, memory: int | None = None, *, shared: bool = False) -> Devices:
    """So many devices."""
    return Devices(kind="cuda", count=count, memory_bytes=memory, shares_memory=shared)


def placed(devices: Devices, *wishes: Wish) -> Placement:
    """Place what must fit."""
    report = Report()
    found = place(wishes, devices, report)
    assert report.diagnostics == ()
    return found


def refused(devices: Devices, *wishes: Wish) -> list[Diagnostic]:
    """Place what must not fit."""
    report = Report()
    place(wishes, devices, report)
    assert report.failed
    return list(report.diagnostics)


def test_a_list_for_all_replicas_is_cut_into_slices() -> None:
    """Two replicas of two ranks take four devices in order."""
    found = placed(cards(4), wish(world=2, replicas=2, listed="3, 2, 1, 0"))
    assert found.replicas[0] == ((3, 2), (1, 0))


@pytest.mark.parametrize(
    ("listed", "expected"), [("0,1", ((0, 1), (2, 3))), ("1,0", ((1, 0), (3, 2)))]
)
def test_a_list_for_one_replica_is_repeated(
    listed: str, expected: tuple[tuple[int, ...], ...]
) -> None:
    """Replica r of a template gets r x world + each of its ids."""
    assert placed(cards(4), wish(world=2, replicas=2, listed=listed)).replicas[0] == expected


def test_a_template_must_count_from_zero() -> None:
    """`1` for two replicas of one rank says nothing about the second; it fails here, not later."""
    [found] = refused(cards(4), wish(replicas=2, listed="1"))
    assert found.message == "`s0`: device `1` cannot be repeated for `2` replicas of `1` rank"
    assert found.help == "list all `2` devices, or those of one replica counted from `0`"


@pytest.mark.parametrize(
    ("listed", "world", "replicas", "message"),
    [
        ("0", 4, 1, "`s0` lists `1` device and needs `4`: `4` ranks"),
        ("0,1,2", 2, 1, "`s0` lists `3` devices and needs `2`: `2` ranks"),
        ("0,1,2", 1, 2, "`s0` lists `3` devices and needs `1` or `2`: `2` replicas of `1` rank"),
    ],
)
def test_a_wrong_number_of_devices_names_every_right_one(
    listed: str, world: int, replicas: int, message: str
) -> None:
    """The help holds the override to type."""
    [found] = refused(cards(8), wish(world=world, replicas=replicas, listed=listed))
    assert found.message == message
    assert "`--stage-overrides`" in (found.help or "")


def test_a_device_listed_twice_is_refused() -> None:
    """Two ranks of a stage never share a device."""
    [found] = refused(cards(4), wish(world=2, listed="1,1"))
    assert found.message == "`s0` lists device `1` more than once"


@pytest.mark.parametrize("listed", ["0,4", "0,9999999999", f"0,{'9' * 5000}"])
def test_a_device_that_is_not_there_is_refused(listed: str) -> None:
    """It is never mapped to another one, however long its number is."""
    [found] = refused(cards(4), wish(world=2, listed=listed))
    assert found.code == "PL012"
    assert len(found.message) <= 100


def test_ids_with_leading_zeros_are_numbers_all_the_same() -> None:
    """`007` is device 7."""
    assert placed(cards(8), wish(listed="000000007")).replicas[0] == ((7,),)


def test_a_repeated_list_must_stay_within_the_devices() -> None:
    """The second replica of `0,1` would need devices 2 and 3."""
    [found] = refused(cards(3), wish(world=2, replicas=2, listed="0,1"))
    assert found.message == "`s0` asks for device `3`, and there are `3`"


def test_slots_are_as_many_as_the_plan_needs() -> None:
    """Every rank has one of its own, around those that are listed."""
    found = placed(cards(None), wish(0, world=2), wish(1, listed="1"), wish(2, replicas=2))
    assert found.replicas == {0: ((0, 2),), 1: ((1,),), 2: ((3,), (4,))}
    assert found.devices.count == 5


def test_free_ranks_go_to_the_least_loaded_devices() -> None:
    """First by bytes, then by ranks, then by number; a replica's ranks never share a device."""
    found = placed(
        cards(3, 100),
        wish(0, need=50),
        wish(1, world=2, need=10),
        wish(2, need=10),
        wish(3, need=5),
    )
    assert found.replicas == {0: ((0,),), 1: ((1, 2),), 2: ((1,),), 3: ((2,),)}


def test_listed_stages_are_placed_before_free_ones() -> None:
    """The first stage makes way for what the second one is bound to."""
    found = placed(cards(2, 10), wish(0, need=6), wish(1, need=6, listed="0"))
    assert found.replicas == {0: ((1,),), 1: ((0,),)}


def test_too_few_devices_for_one_replica_are_refused() -> None:
    """The message holds both numbers."""
    [found] = refused(cards(2), wish(world=4))
    assert found.message == "`s0` needs `4` devices, and there are `2`"


def test_devices_without_room_are_refused() -> None:
    """Sharing ends where memory does."""
    [found] = refused(cards(2, 1024**3), wish(0, need=2**29), wish(1, world=2, need=600 * 2**20))
    assert found.message == "`s1` needs 600 MiB on `2` devices, and `1` have room"
    assert found.help == "give more devices, or lower what the engines of these stages keep"


def test_a_rank_that_no_device_holds_is_spread() -> None:
    """Fewer ranks would hold more each, and more devices of that kind would not help."""
    [found] = refused(cards(2, 100), wish(0, need=101))
    assert found.help == (
        "give larger devices, spread the stage over more, or lower what its engine keeps"
    )


def test_who_takes_the_devices_is_told_with_places() -> None:
    """The stages on those without room, each once, where it was said what they keep."""
    factor = Note(message="`tp` = `2` is set here", origin=somewhere())
    wide = wish(0, world=2, need=7, listed="0,1")
    wide = replace(wide, amount_origin=somewhere(), notes=(factor,))
    more = wish(1, need=2, listed="1")
    late = replace(wish(2, world=3, need=4), notes=(factor,))
    (found,) = refused(cards(3, 10), wide, more, late)
    assert found.message == "`s2` needs 4 B on `3` devices, and `1` have room"
    assert [(each.message, each.origin) for each in found.notes] == [
        (factor.message, factor.origin),
        ("`s0` takes 7 B of each of `2` devices", somewhere()),
        ("`s1` takes 2 B of device `1`", None),
    ]


def test_a_share_that_sets_the_need_is_told() -> None:
    """And not where the weights need more than it."""
    share = replace(
        wish(0, need=4), share=0.7, share_origin=somewhere(), amount_origin=somewhere("cache")
    )
    (found,) = refused(cards(1, 10), wish(1, need=5, listed="0"), share)
    assert found.message == "`s0` needs 7 B on `1` device, and `0` have room"
    assert found.origin == somewhere()
    assert [(each.message, each.origin) for each in found.notes] == [
        ("`s0` may use `0.7` of a device", somewhere()),
        ("`s1` takes 5 B of device `0`", None),
    ]
    (found,) = refused(cards(1, 10), wish(1, need=5, listed="0"), replace(share, rank_bytes=8))
    assert found.origin == somewhere("cache")
    assert [each.message for each in found.notes] == ["`s1` takes 5 B of device `0`"]


def test_listed_stages_that_do_not_fit_together_are_told_once() -> None:
    """Two devices are too full for the same reason: one finding, with each stage's share."""
    [found] = refused(
        cards(2, 100),
        wish(0, world=2, listed="0,1", need=80),
        wish(1, world=2, need=30, listed="0,1"),
    )
    assert found.message == "device `0` has 100 B, and its stages need 110 B"
    assert [note.message for note in found.notes] == ["`s0` takes 80 B", "`s1` takes 30 B"]


def test_slots_that_are_too_small_should_be_fewer() -> None:
    """More slots do not help where all share one memory."""
    [found] = refused(cards(None, 100, shared=True), wish(0, need=60), wish(1, need=10))
    assert found.message == "device `0` has 50 B, and its stages need 60 B"
    assert (
        found.help
        == "give fewer devices with `--devices`: they divide the memory of this host evenly"
    )


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (3 * 2**29, "1.5 GiB"),
        (2**60, "1.049e+06 TiB"),
    ],
)
def test_sizes_are_said_in_binary_units(amount: int, text: str) -> None:
    """Four digits are enough."""
    assert size_text(amount) == text


def test_where_devices_are_as_many_as_needed_their_numbers_have_no_gaps() -> None:
    """`0,5` on one stage and nothing on 1 to 4 is refused, naming the first that is skipped."""
    [found] = refused(cards(None), wish(world=2, listed="0,5"))
    assert found.code == "PL017"
    assert found.message == "device `5` is used and device `1` is not"
    assert found.origin == somewhere()


def test_other_stages_may_fill_a_gap() -> None:
    """What one stage skips, a later one takes."""
    found = placed(cards(None), wish(0, world=2, listed="0,2"), wish(1))
    assert found.replicas[1] == ((1,),)
