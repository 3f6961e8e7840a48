"""The nearest layout that fits, in the help of messages about one that does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from stagemesh.plan.build import PlanRequest, build
from stagemesh.plan.devices import Devices
from stagemesh.plan.fit.suggest import Overrides, suggest, with_suggestion
from stagemesh.spec.diagnostic import Diagnostic, Severity
from stagemesh.spec.facts import StageFacts
from tests.plan.cost.known import FLUX, WAN
from tests.plan.fit.fitting import PICTURE, SPEECH_FACTS, asked, installed
from tests.plan.making import Said, axis, pipeline, request, solo, stage

GIB: Final = 2**30
THREE: Final = pipeline(stage(0, "front"), stage(1, "mid"), stage(2, "tail"))
NEEDS: Final = {"front": 60 * GIB, "mid": 8 * GIB, "tail": 4 * GIB}
PLACES: Final = {"front": "0", "mid": "1", "tail": "0"}


def budgets(count: int, **axes: int) -> PlanRequest:
    """Three stages that say what they need, bound to devices as a file for two cards would."""
    said = {
        name: Said(
            axes=[axis("tp", axes[name])] if name in axes else [],
            fields={"engine": "fake", "memory_bytes": NEEDS[name], "devices": PLACES[name]},
        )
        for name in NEEDS
    }
    devices = Devices(kind="big", count=count, memory_bytes=80 * GIB, imaginary=True)
    return request(THREE, said, devices=devices)


def works(offer: Overrides) -> bool:
    """Take every offer: how each is tried on what was given is a matter of who makes the plan."""
    return bool(offer)


def suggested(given: PlanRequest) -> Overrides | None:
    """Ask with the engines of this project."""
    return suggest(given, installed(), works)


def helped(given: PlanRequest) -> list[str]:
    """Return the help of every error of a plan that must fail."""
    result = build(given, installed())
    assert result.plan is None
    found = with_suggestion(result.diagnostics, given, installed(), works)
    assert [each.message for each in found] == [each.message for each in result.diagnostics]
    return [each.help or "" for each in found]


def placed(given: PlanRequest) -> dict[str, str]:
    """Where the stages lie once the suggestion is followed."""
    overrides = suggested(given)
    assert overrides is not None
    return {name: str(overrides.get(name, {}).get("devices", PLACES[name])) for name in NEEDS}


def test_one_device_takes_all_stages_whose_budgets_fit() -> None:
    """A file for two cards on one: the layout that fits puts everything on it."""
    given = budgets(1)
    assert placed(given) == dict.fromkeys(NEEDS, "0")
    assert sum(NEEDS.values()) <= 80 * GIB
    (text,) = helped(given)
    assert text.endswith("; this would fit: `--set mid.devices=0`")


def test_two_devices_leave_the_large_stage_alone() -> None:
    """Where it has no room for another one, the small ones share the other card."""
    given = budgets(2)
    assert build(given, installed()).plan is not None
    small = replace(given, devices=replace(given.devices, memory_bytes=62 * GIB))
    assert placed(small) == {"front": "0", "mid": "1", "tail": "1"}


def test_an_axis_that_takes_too_much_of_every_device_is_given_up() -> None:
    """Four ranks on one device, and two devices in all."""
    given = budgets(2, mid=4)
    assert suggested(given) == {"mid": {"tensor_parallel_size": 1}}
    small = replace(given, devices=replace(given.devices, memory_bytes=62 * GIB))
    assert suggested(small) == {"mid": {"tensor_parallel_size": 1}, "tail": {"devices": "1"}}


def test_a_flag_that_reached_every_stage_is_taken_back_where_it_does_not_fit() -> None:
    """The first stage has four devices, and the others one each, of five that there are."""
    said = {
        "front": Said(axes=[axis("tp", 4)], fields={"devices": "0,1,2,3"}),
        "mid": Said(axes=[axis("tp", 4)], fields={"devices": "4"}),
        "tail": Said(axes=[axis("tp", 4)], fields={"devices": "4"}),
    }
    five = Devices(kind="big", count=5, memory_bytes=None, imaginary=True)
    given = request(THREE, said, devices=five)
    assert suggested(given) == {
        "mid": {"tensor_parallel_size": 1},
        "tail": {"tensor_parallel_size": 1},
    }
    twelve = replace(given, devices=replace(five, count=12))
    assert suggested(twelve) == {"mid": {"devices": "4,5,6,7"}, "tail": {"devices": "8,9,10,11"}}
    first, second = helped(given)
    assert "this would fit" in first
    assert "this would fit" not in second


def test_two_factors_too_many_become_one() -> None:
    """Two devices, and a world of four that nobody multiplied: one of both axes stays.

    With devices that are idle, both stay.
    """
    axes = [axis("sp_ulysses", 2), axis("cfg", 2)]
    said = {"thinker": Said(axes=axes, fields={"devices": "0,1"})}
    assert suggested(asked(PICTURE, WAN, said=said)) == {"thinker": {"devices": "0,1,2,3"}}
    given = asked(PICTURE, WAN, count=2, said=said)
    assert suggested(given) == {"thinker": {"ulysses_degree": 1}}
    result = build(given, installed())
    (found,) = result.diagnostics
    assert [note.message for note in found.notes] == [
        "`cfg` = `2` is set here",
        "`sp_ulysses` = `2` is set here",
        "`cfg` x `sp_ulysses` = `4` ranks",
    ]


@pytest.mark.parametrize(("size", "nearest"), [(3, 2), (8, 4), (64, 4), (10**9, 4)])
def test_a_size_that_does_not_divide_becomes_the_next_smaller_one(size: int, nearest: int) -> None:
    """Of 28 query heads, however far off it was."""
    said = {"thinker": Said(axes=[axis("tp", size)])}
    given = asked(solo(), SPEECH_FACTS["thinker"], count=64, said=said)
    assert suggested(given) == {"thinker": {"tensor_parallel_size": nearest}}


def test_more_ranks_than_devices_become_fewer() -> None:
    """As many as there are, in the axes that were given."""
    said = {"thinker": Said(axes=[axis("sp_ulysses", 4), axis("sp_ring", 2)])}
    given = asked(PICTURE, WAN, count=4, said=said)
    assert suggested(given) == {"thinker": {"ring_degree": 1}}


def test_a_model_that_is_too_large_is_cut() -> None:
    """Into as few pieces as will do."""
    thinker = asked(
        pipeline(stage(0, "thinker"), planning_only="not yet"),
        replace(SPEECH_FACTS["thinker"], weight_bytes=60 * GIB),
        "A100",
        4,
    )
    small = replace(thinker, devices=replace(thinker.devices, memory_bytes=40 * GIB))
    assert suggested(small) == {"thinker": {"tensor_parallel_size": 2}}
    bound = {"thinker": Said(fields={"devices": "0"})}
    listed = asked(thinker.pipeline, small.facts, "A100", 4, bound)
    listed = replace(listed, devices=small.devices)
    assert suggested(listed) == {"thinker": {"tensor_parallel_size": 2, "devices": "0,1"}}


def test_only_what_changes_is_said() -> None:
    """A stage that fits as it is does not appear."""
    model = pipeline(stage(0, "thinker"), stage(1, "talker"), planning_only="not yet")
    facts = {**SPEECH_FACTS, "thinker": replace(SPEECH_FACTS["thinker"], weight_bytes=60 * GIB)}
    given = asked(model, facts, "A100", 5)
    given = replace(given, devices=replace(given.devices, memory_bytes=40 * GIB))
    assert suggested(given) == {"thinker": {"tensor_parallel_size": 2}}


def test_what_no_stage_field_can_say_is_not_suggested() -> None:
    """The best layout for these devices needs an axis that only a strategy file can give."""
    given, catalog = asked(PICTURE, WAN, "RTX4090", 4), installed()
    assert suggest(given, catalog, works) is not None
    silent = {name: replace(declared, deploy_fields=()) for name, declared in catalog.axes.items()}
    assert suggest(given, replace(catalog, axes=silent), works) is None


def test_nor_is_an_option_that_none_says() -> None:
    """Two ranks fit if they share the text encoder, which has a field of its own."""
    parts = {"transformer": 40 * GIB, "text_encoder": 24 * GIB}
    said = {"thinker": Said(axes=[axis("tp", 2)])}
    given = asked(
        PICTURE, replace(FLUX, component_bytes=parts, num_encoder_heads=64), "L40S", 2, said
    )
    assert suggested(given) == {"thinker": {"text_encoder_tp_size": 2}}
    catalog = installed()
    tp = catalog.axes["tp"]
    fields = tuple(each for each in tp.deploy_fields if each.member not in tp.sharing)
    silent = {**catalog.axes, "tp": replace(tp, deploy_fields=fields)}
    assert suggest(given, replace(catalog, axes=silent), works) is None


def test_nothing_is_suggested_where_nothing_fits() -> None:
    """Too large for all devices together; or how many there are is free."""
    huge = replace(WAN, num_parameters=10**12)
    assert suggested(asked(PICTURE, huge, count=2)) is None
    assert suggested(asked(PICTURE, huge, count=64)) is None
    assert "this would fit" not in "".join(helped(asked(PICTURE, huge, count=2)))
    slots = Devices(kind="cpu", count=None, memory_bytes=GIB, shares_memory=True)
    crowded = request(
        THREE,
        {name: Said(fields={"engine": "fake", "memory_bytes": GIB}) for name in NEEDS},
        devices=slots,
    )
    assert suggested(crowded) is None


def test_an_axis_without_a_field_is_left_as_it_is() -> None:
    """Context parallelism has none; the other one can be made smaller."""
    said = {"thinker": Said(axes=[axis("cp", 2), axis("tp", 4)], fields={"devices": "0,1"})}
    given = asked(solo(), SPEECH_FACTS["thinker"], count=2, said=said)
    assert suggested(given) == {"thinker": {"tensor_parallel_size": 1}}


def test_of_many_stages_with_devices_one_or_all_are_freed() -> None:
    """Not every choice of them: a message should not take long."""
    names = ("a", "b", "c", "d", "e")
    model = pipeline(*(stage(number, name) for number, name in enumerate(names)))
    places = {name: str(number) for number, name in enumerate(names)}
    said = {
        name: Said(axes=[axis("tp", 2)] if name == "c" else [], fields={"devices": places[name]})
        for name in names
    }
    given = request(model, said, devices=Devices(kind="big", count=8, memory_bytes=None))
    assert suggested(given) == {"c": {"devices": "2,5"}}


def test_an_axis_with_a_switch_is_switched_off() -> None:
    """Rather than kept with one rank."""
    given = asked(PICTURE, WAN, count=1, said={"thinker": Said(axes=[axis("hsdp", 8)])})
    assert suggested(given) == {"thinker": {"use_hsdp": False}}


def test_other_mistakes_are_corrected_first() -> None:
    """No layout answers an engine that does not exist."""
    said = {"thinker": Said(axes=[axis("tp", 3)], fields={"engine": "steam"})}
    given = asked(solo(), SPEECH_FACTS["thinker"], said=said)
    assert "this would fit" not in "".join(helped(given))


def test_warnings_alone_are_left_as_they_are() -> None:
    """There is nothing to correct."""
    given = asked(solo(), StageFacts())
    warning = Diagnostic(code="PL014", message="mind", severity=Severity.WARNING)
    assert with_suggestion([warning], given, installed(), works) == (warning,)
