"""The search for layouts: what it finds, what it never touches, and that the planner agrees."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.plan.build import build
from stagemesh.plan.checks import MAX_RANKS
from stagemesh.plan.fit.search import Found
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import ExecutionType
from tests.examples import fewer
from tests.plan.cost.known import FLUX, QWEN_IMAGE, WAN
from tests.plan.fit.fitting import PICTURE, SPEECH, SPEECH_FACTS, asked, found, installed, layouts
from tests.plan.making import Said, axis, pipeline, solo, stage

MIXTURE: Final = replace(
    SPEECH_FACTS["thinker"],
    num_experts=64,
    moe_intermediate_size=1792,
    num_experts_per_tok=4,
    num_layers=28,
    weight_bytes=70_000_000_000,
)


def test_short_answers_come_first_where_something_is_denoised() -> None:
    """Guidance is cut before the sequence, and Ulysses before the ring."""
    result = found(asked(PICTURE, QWEN_IMAGE, "H100"))
    assert result.by_latency
    assert layouts(result) == [
        {"thinker": {"cfg": 2, "sp_ulysses": 4}},
        {"thinker": {"cfg": 2, "sp_ring": 2, "sp_ulysses": 2}},
        {"thinker": {"sp_ulysses": 8}},
    ]


def test_many_answers_come_first_where_tokens_are_decoded() -> None:
    """The busiest stage gets copies; cutting a model that fits is second best."""
    result = found(asked(SPEECH, SPEECH_FACTS))
    assert not result.by_latency
    assert layouts(result)[:2] == [
        {"thinker": {"stage_replica": 5}, "talker": {"stage_replica": 2}},
        {"thinker": {"tp": 2, "stage_replica": 3}},
    ]
    assert result.choices[0].speed.busy < result.choices[1].speed.busy


def test_weights_that_do_not_fit_are_cut() -> None:
    """Where one device is too small the best layout has smaller ranks."""
    small = found(asked(PICTURE, WAN, "RTX4090"))
    best = small.choices[0]
    assert layouts(small)[0] == {"thinker": {"cfg": 2, "sp_ulysses": 4, "hsdp": 8}}
    memory = best.plan.stages[0].memory
    assert memory is not None
    assert memory.total < 24 * 10**9
    thinker = found(asked(SPEECH, SPEECH_FACTS, "T4", 8)).choices[0].plan.stages[0]
    assert {each.axis for each in thinker.axes} == {"tp"}


def test_axes_that_only_save_memory_are_left_out_where_it_suffices() -> None:
    """Neither shards nor tiles nor layers make a forward faster."""
    result = found(asked(PICTURE, FLUX, "H200"), best=50)
    used = {name for each in layouts(result) for name in each.get("thinker", {})}
    assert used == {"sp_ulysses", "sp_ring", "tp", "stage_replica"}


def test_they_are_tried_where_stages_have_to_share_devices() -> None:
    """Three stages fit alone, and on two devices together only if the layers of one are parted."""
    names = ("thinker", "talker", "code2wav")
    model = pipeline(
        *(
            stage(number, name, execution_type=ExecutionType.DIFFUSION)
            for number, name in enumerate(names)
        ),
        planning_only="not yet",
    )
    heavy = StageFacts(
        num_attention_heads=13,
        num_kv_heads=13,
        head_dim=8,
        hidden_size=104,
        intermediate_size=13,
        num_layers=40,
        sequence_length=64,
        num_parameters=12 * 10**9,
    )
    result = found(asked(model, dict.fromkeys(names, heavy), "L40S", 2))
    assert layouts(result)[0] == {"code2wav": {"pp": 2}}


def test_experts_are_spread_over_groups_of_ranks() -> None:
    """Copies inside the engine are of use there: experts lie over all of them."""
    one = pipeline(stage(0, "thinker"), planning_only="not yet")
    used = names_in(found(asked(one, MIXTURE, "H100"), best=20))
    assert {"ep", "dp", "tp"} <= used
    without = replace(MIXTURE, num_experts=0)
    assert names_in(found(asked(one, without, "H100"), best=20)) == {"tp", "stage_replica"}


def names_in(result: Found) -> set[str]:
    """Every axis that one of the choices has."""
    return {name for each in layouts(result) for axes in each.values() for name in axes}


def test_a_stage_that_can_run_is_laid_out_so_that_it_runs() -> None:
    """Only with axes that its engine executes, and copies."""
    facts = SPEECH_FACTS["thinker"]
    assert names_in(found(asked(solo(), facts), best=20)) == {"stage_replica"}


def test_axes_that_were_given_stay() -> None:
    """Whatever else would be faster."""
    said = {"thinker": Said(axes=[axis("tp", 2), axis("sp_ulysses", 1)])}
    result = found(asked(PICTURE, QWEN_IMAGE, "H100", 8, said), best=50)
    assert result.choices
    for each in layouts(result):
        assert each["thinker"]["tp"] == 2
        assert each["thinker"]["sp_ulysses"] == 1


def test_copies_that_were_given_stay() -> None:
    """They count as ranks that are taken."""
    said = {"thinker": Said(axes=[axis("stage_replica", 4)])}
    result = found(asked(PICTURE, QWEN_IMAGE, "H100", 8, said))
    assert layouts(result)[0] == {"thinker": {"stage_replica": 4, "cfg": 2}}


@pytest.mark.parametrize(
    ("devices", "expected"),
    [("4,5", {"cfg": 2}), ("0,1,2,3", {"cfg": 2, "sp_ring": 2})],
)
def test_listed_devices_bind(devices: str, expected: dict[str, int]) -> None:
    """As many ranks as are listed, where they are listed."""
    said = {"thinker": Said(fields={"devices": devices})}
    result = found(asked(PICTURE, QWEN_IMAGE, "H100", 8, said))
    assert layouts(result)[0] == {"thinker": expected}
    ranks = result.choices[0].plan.stages[0].replicas[0].ranks
    assert ",".join(str(rank.device) for rank in ranks) == devices


def test_a_pool_of_devices_takes_copies() -> None:
    """A layout of fewer ranks fills the list with copies."""
    said = {"thinker": Said(axes=[axis("cfg", 2)], fields={"devices": "0,1,2,3"})}
    result = found(asked(PICTURE, QWEN_IMAGE, "H100", 8, said), best=20)
    assert {"thinker": {"cfg": 2, "stage_replica": 2}} in layouts(result)


def test_what_cannot_be_checked_is_not_proposed() -> None:
    """Nobody knows whether the model takes guidance, or how many heads it has."""
    facts = replace(QWEN_IMAGE, guidance=None, num_kv_heads=None)
    used = names_in(found(asked(PICTURE, facts, "H100"), best=50))
    assert not {"cfg", "tp"} & used


def test_arguments_that_the_engine_refuses_have_no_layout() -> None:
    """A longer context than the model's is wrong on any number of ranks."""
    said = {"thinker": Said(fields={"max_model_len": 10**6})}
    assert found(asked(solo(), SPEECH_FACTS["thinker"], said=said)).choices == ()


def test_axes_that_contradict_each_other_have_no_layout() -> None:
    """The search finds nothing, and does not fail."""
    said = {"thinker": Said(axes=[axis("tp", 2), axis("hsdp", 2)])}
    assert found(asked(PICTURE, WAN, said=said)).choices == ()
    far = {"thinker": Said(axes=[axis("tp", 10**9)])}
    assert found(asked(PICTURE, WAN, said=far)).choices == ()


def test_stages_of_one_process_get_copies_together_and_one_rank() -> None:
    """The guest takes no device of its own; what is cut over ranks is left to the others."""
    said = {"talker": Said(fields={"colocate_with": "thinker"})}
    best, *others = layouts(found(asked(SPEECH, SPEECH_FACTS, said=said)))
    assert best == {"thinker": {"stage_replica": 7}, "talker": {"stage_replica": 7}}
    assert all(each["thinker"] == each["talker"] for each in others)


def test_a_stage_of_unknown_speed_gets_copies_with_its_host() -> None:
    """Nothing is said to stay as it was then."""
    facts = {**SPEECH_FACTS, "talker": StageFacts()}
    alone = found(asked(SPEECH, facts))
    assert "talker" in alone.unknown
    said = {"talker": Said(fields={"colocate_with": "thinker"})}
    shared = found(asked(SPEECH, facts, said=said))
    assert "talker" not in shared.unknown


def test_copies_that_were_given_to_one_stage_of_a_process_bind_the_other() -> None:
    """Two against one have no layout together."""
    guest = Said(axes=[axis("stage_replica", 2)], fields={"colocate_with": "thinker"})
    single = Said(axes=[axis("stage_replica", 1)])
    assert (
        found(asked(SPEECH, SPEECH_FACTS, said={"talker": guest, "thinker": single})).choices == ()
    )


def test_a_stage_of_unknown_speed_stays_as_it_is() -> None:
    """The others are laid out around it."""
    facts = {**SPEECH_FACTS, "talker": StageFacts()}
    result = found(asked(SPEECH, facts))
    assert result.unknown == ("talker",)
    assert all("talker" not in each for each in layouts(result))
    assert layouts(result)[0] == {"thinker": {"stage_replica": 6}}


def test_without_any_knowledge_the_layout_is_that_which_was_given() -> None:
    """There is nothing to rank."""
    result = found(asked(SPEECH, StageFacts()))
    assert result.unknown == ("thinker", "talker", "code2wav")
    assert layouts(result) == [{}]


def test_stages_share_the_devices_that_there_are() -> None:
    """Three stages on one device; the estimate adds up what lies on it."""
    result = found(asked(SPEECH, SPEECH_FACTS, count=1))
    assert layouts(result) == [{}]
    speed = result.choices[0].speed
    assert speed == result.baseline
    alone = found(asked(SPEECH, SPEECH_FACTS, count=3)).baseline
    assert speed.busy > alone.busy


def test_the_baseline_is_estimated_even_where_it_does_not_fit() -> None:
    """So that a proposal can be compared with it."""
    result = found(asked(PICTURE, WAN, "RTX4090"))
    assert build(asked(PICTURE, WAN, "RTX4090"), installed()).plan is None
    assert result.baseline.latency > result.choices[0].speed.latency


@pytest.mark.parametrize("count", [24, 64])
def test_many_devices_take_usual_numbers_of_ranks(count: int) -> None:
    """Products of two and three, and divisors of the devices; a search stays short."""
    result = found(asked(PICTURE, WAN, "H200", count), best=100)
    assert result.tried < 1000
    for choice in result.choices:
        world = choice.plan.stages[0].world_size
        assert count % world == 0 or world in {
            1,
            2,
            3,
            4,
            6,
            8,
            9,
            12,
            16,
            18,
            24,
            27,
            32,
            36,
            48,
            54,
        }


@pytest.mark.parametrize("count", [8, 61, 200])
def test_the_busiest_stage_gets_copies_as_long_as_there_are_devices(count: int) -> None:
    """A copy more of the busiest has no room, and one less of any other would be the busiest."""
    for choice in found(asked(SPEECH, SPEECH_FACTS, count=count)).choices:
        copies = {each.stage_id: len(each.replicas) for each in choice.plan.stages}
        busy = {
            each: candidate.time.busy / copies[each]
            for each, candidate in choice.candidates.items()
            if candidate.time is not None
        }
        busiest = max(busy, key=busy.__getitem__)
        ranks = sum(each.world_size * len(each.replicas) for each in choice.plan.stages)
        assert ranks <= count < ranks + choice.candidates[busiest].ranks
        for each, seconds in busy.items():
            fewer_copies = copies[each] - 1
            assert not fewer_copies or seconds * copies[each] / fewer_copies > busy[busiest]


def test_of_stages_that_are_as_busy_the_first_gets_the_last_device() -> None:
    """Where there is one copy more for one of two."""
    both = dict.fromkeys(("thinker", "talker"), SPEECH_FACTS["thinker"])
    facts = {**both, "code2wav": StageFacts(num_experts=0)}
    said = dict.fromkeys(both, Said(axes=[axis("tp", 1), axis("dp", 1)]))
    best = found(asked(SPEECH, facts, count=4, said=said)).choices[0]
    assert [len(stage.replicas) for stage in best.plan.stages] == [2, 1, 1]


def test_a_stage_gets_no_more_ranks_than_it_may_have() -> None:
    """However many devices are left."""
    said = {"thinker": Said(axes=[axis("tp", 1), axis("sp_ring", 1), axis("sp_ulysses", 512)])}
    facts = replace(WAN, num_attention_heads=512)
    best = layouts(found(asked(PICTURE, facts, "H200", 65_536, said)))[0]["thinker"]
    assert 512 * best["stage_replica"] * best.get("cfg", 1) == MAX_RANKS


def test_copies_of_very_many_ranks_are_not_looked_at() -> None:
    """The search of 512 devices is that of 256."""
    said = {"thinker": Said(axes=[axis("tp", 1), axis("cfg", 1), axis("sp_ulysses", 1)])}
    many, few = (found(asked(PICTURE, WAN, count=count, said=said)) for count in (512, 256))
    assert many.tried == few.tried
    assert max(choice.plan.stages[0].world_size for choice in many.choices) <= 256


def test_a_stage_can_have_its_ranks_from_shards_alone() -> None:
    """Where the sequence cannot be cut, or nothing is known about it."""
    facts = StageFacts(num_layers=40, hidden_size=64, num_parameters=40 * 10**9, sequence_length=64)
    result = found(asked(PICTURE, facts, "H100", 3))
    assert layouts(result)[0] == {"thinker": {"hsdp": 2}}


HEAVY: Final = replace(
    FLUX,
    num_encoder_heads=64,
    component_bytes={"transformer": 40 * 2**30, "text_encoder": 24 * 2**30, "vae": 2**27},
)
"""Too large for two devices of 45 GiB unless they share the text encoder too."""


def shared(result: Found) -> list[object]:
    """Ranks that share the text encoder in each choice."""
    return [
        axis.options["text_encoder"]
        for choice in result.choices
        for axis in choice.plan.stages[0].axes
        if axis.axis == "tp"
    ]


def test_ranks_share_a_text_encoder_only_where_that_makes_it_fit() -> None:
    """On large devices it is left whole."""
    assert set(shared(found(asked(PICTURE, HEAVY, "H200", 2), best=50))) == {1}
    assert set(shared(found(asked(PICTURE, HEAVY, "L40S", 2), best=50))) == {2}


def test_a_number_of_ranks_that_was_given_for_the_text_encoder_stays() -> None:
    """Be it one."""
    said = {"thinker": Said(axes=(axis("tp", 2, text_encoder=1),))}
    assert shared(found(asked(PICTURE, HEAVY, "L40S", 2, said))) == []
    free = {"thinker": Said(axes=(axis("tp", 2),))}
    assert shared(found(asked(PICTURE, HEAVY, "L40S", 2, free))) == [2]


@fewer(10)
@given(
    st.sampled_from([FLUX, QWEN_IMAGE, WAN]),
    st.sampled_from(["H200", "A100", "RTX4090"]),
    st.integers(1, 12),
)
def test_every_choice_fits_and_the_order_is_fixed(
    facts: StageFacts, device: str, count: int
) -> None:
    """Devices, memory, and the same answer twice."""
    given_ = asked(PICTURE, facts, device, count)
    first, second = found(given_), found(given_)
    assert first == second
    keys = [(choice.speed.latency, choice.speed.busy) for choice in first.choices]
    assert [key[0] for key in keys] == sorted(key[0] for key in keys)
    for choice in first.choices:
        stage_plan = choice.plan.stages[0]
        assert stage_plan.world_size * len(stage_plan.replicas) <= count
        assert stage_plan.memory is not None
        assert stage_plan.memory.total <= (choice.plan.devices.memory_bytes or 0)
