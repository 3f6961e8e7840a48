"""Shares of device memory: their sum, their budget, and where they are placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import Made, make
from stagemesh.plan.render import plan_text
from stagemesh.plan.setup import SharePlan
from stagemesh.spec.facts import StageFacts
from tests.plan.fit.test_messages import FIXTURES, HOST
from tests.plan.making import TOY, catalog
from tests.plan.rules import toys
from tests.plan.rules.test_mps import cuda
from tests.plan.rules.toys import AR, GIB, TWO, Toy, chain, listed

SHARE = "gpu_memory_utilization"
H100 = 80 * 10**9


def on(device: int, share: float | None = None) -> dict[str, object]:
    """A stage on one device."""
    return {"devices": str(device), **({} if share is None else {SHARE: share})}


def weighing(**weights: int) -> Mapping[str, StageFacts]:
    """Facts of stages with so many bytes of weights; the toy engine takes 3 bytes besides."""
    return {name: StageFacts(weight_bytes=amount) for name, amount in weights.items()}


@pytest.fixture
def toy(toy: Toy) -> Toy:
    """Two stages and two H100."""
    return replace(toy, model=TWO, devices="2xH100")


def test_p25_shares_of_one_device_add_up_to_one_at_most(toy: Toy) -> None:
    """The sum is told, with every stage, its share and where it was written."""
    found = toy.one(listed(on(0, 0.9), on(0, 0.3)))
    assert found.code == "PL110"
    assert found.message == "the ranks on device `0` may use `1.2` of its memory together"
    assert [(note.message, note.origin and note.origin.path) for note in found.notes] == [
        ("`s0` may use `0.9`", f"stages[0].{SHARE}"),
        ("`s1` may use `0.3`", f"stages[1].{SHARE}"),
    ]
    assert toy.found(listed(on(0, 0.9), on(1, 0.3))) == []


def test_p25_it_is_told_whether_or_not_bytes_are_known(toy: Toy) -> None:
    """A host with GPUs does not say how large they are."""
    toy = replace(toy, devices=1, host=cuda("0"))
    found = toy.one(listed({SHARE: 0.9}, {SHARE: 0.3}))
    assert found.message == "`s1` needs `0.3` of the memory on `1` device, and `0` have room"
    assert (found.code, found.origin and found.origin.path) == ("PL015", f"stages[1].{SHARE}")
    [told] = toy.found(listed(on(0, 0.9), on(0, 0.3)))
    assert told.startswith("PL110")


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.1, 0.9), (0.95, 0.05), (0.5, 0.5)])
def test_shares_may_use_a_device_up(toy: Toy, shares: tuple[float, float]) -> None:
    """Rounding does not count."""
    plan = toy.plan(listed(*(on(0, share) for share in shares)))
    assert [stage.setup.share for stage in plan.stages] == [
        SharePlan(share=share, memory_bytes=int(share * H100)) for share in shares
    ]
    toy.keeps(plan)


def test_ten_tenths_are_one(tmp_path: Path) -> None:
    """In floating point they are not."""
    model = chain(*[AR] * 10)
    toy = Toy(folder=tmp_path, model=model, devices="1xH100")
    assert toy.found(listed(*[{SHARE: 0.1}] * 10)) == []


def test_every_rank_on_a_device_counts(toy: Toy) -> None:
    """Replicas, too; and the same stages on several devices are told once."""
    toy = replace(toy, model=TWO)
    entries = listed(
        {"tensor_parallel_size": 2, "devices": "0,1", SHARE: 0.7},
        {"tensor_parallel_size": 2, "devices": "0,1", SHARE: 0.7},
    )
    [found] = toy.found(entries)
    assert found == "PL110: the ranks on device `0` may use `1.4` of its memory together"


def test_stages_are_placed_where_their_share_is_free(toy: Toy) -> None:
    """Automatic placement counts shares whether bytes are known or not."""
    for where in (toy, replace(toy, devices=2, host=cuda("0", "1"))):
        plan = where.plan(listed({SHARE: 0.9}, {SHARE: 0.8}))
        ranks = [stage.replicas[0].ranks[0].device for stage in plan.stages]
        assert ranks == [0, 1]
        where.keeps(plan)


def test_a_share_is_a_budget_in_bytes(toy: Toy) -> None:
    """It is reserved as a whole, whatever the estimate says."""
    toy = replace(toy, facts=weighing(s0=GIB, s1=30 * GIB))
    plan = toy.plan(listed(on(0, 0.5), on(0)))
    assert plan.stages[0].setup.share == SharePlan(share=0.5, memory_bytes=40 * 10**9)
    assert "may use 0.5 of a device: 37.25 GiB\n" in plan_text(plan)
    found = toy.one(listed(on(0, 0.8), on(0)))
    assert found.code == "PL016"
    assert [note.message for note in found.notes] == [
        "`s0` takes 59.6 GiB",
        "`s1` takes 30 GiB",
    ]


def test_memory_that_nobody_knows_is_not_told_as_none(toy: Toy) -> None:
    """Beside a stage that is too large already."""
    toy = replace(toy, facts=weighing(s0=90 * 10**9))
    found = toy.one(listed(on(0), on(0)))
    assert found.code == "PL016"
    assert [note.message for note in found.notes] == [
        "`s0` takes 83.82 GiB",
        "`s1` takes memory as well; how much is not known",
    ]


def test_a_stage_beside_a_share_that_nobody_knows_is_not_checked(toy: Toy) -> None:
    """The plan says so; with an estimate it is checked by bytes."""
    sentence = "memory of device `0`: what `s1` takes beside shares is not known"
    plan = toy.plan(listed(on(0, 0.5), on(0)))
    assert sentence in plan.skipped_checks
    known = replace(toy, facts=weighing(s1=GIB)).plan(listed(on(0, 0.5), on(0)))
    assert sentence not in known.skipped_checks
    unsized = replace(toy, facts=weighing(s1=GIB), devices=1, host=cuda("0"))
    assert sentence in unsized.plan(listed(on(0, 0.5), on(0))).skipped_checks
    assert sentence not in toy.plan(listed(on(0), on(0))).skipped_checks


def test_a_share_holds_the_weights_at_least(toy: Toy) -> None:
    """The help says how much would do."""
    toy = replace(toy, facts=weighing(s0=16 * 10**9, s1=GIB))
    found = toy.one(listed(on(0, 0.1), on(1)))
    assert found.code == "PL111"
    assert found.message == ("`s0` may use 7.451 GiB of a device and needs 14.9 GiB without cache")
    assert (found.help or "").startswith("write at least `0.21`")
    assert toy.found(listed(on(0, 0.21), on(1))) == []


def test_a_stage_that_no_device_holds_is_told_once(toy: Toy) -> None:
    """Its share is not to blame."""
    toy = replace(toy, facts=weighing(s0=90 * 10**9, s1=GIB))
    [found] = toy.found(listed(on(0, 0.1), on(1)))
    assert found.startswith("PL016")


def test_a_cache_of_a_given_size_fits_the_share_beside_the_weights(toy: Toy) -> None:
    """The share is a target for all of a rank, so a plan cannot promise both."""
    cache = {"kv_cache_memory_bytes": 60 * 10**9}
    made = planned("qwen2_5_omni", 4, f"{SHARE}=0.3", "kv_cache_memory_bytes=60000000000")
    (found,) = made.diagnostics
    assert (found.code, found.origin and found.origin.path) == ("PL111", f"thinker.{SHARE}")
    assert found.message == (
        "`thinker` may use 22.35 GiB of a device and needs 71.66 GiB with its cache"
    )
    (note,) = found.notes
    assert note.message == "the cache takes 55.88 GiB"
    assert note.origin is not None
    assert note.origin.source == "--set thinker.kv_cache_memory_bytes=60000000000"
    assert "write at least `0.97`, lower `kv_cache_memory_bytes`" in (found.help or "")
    fits = planned("qwen2_5_omni", 4, f"{SHARE}=0.97", "kv_cache_memory_bytes=60000000000")
    assert fits.diagnostics == ()
    assert toy.found(listed({**cache, **on(0, 0.3)})) == []  # nothing is known of this stage


def planned(model: str, devices: int, *values: str) -> Made:
    """Plan with values of `thinker`."""
    given = tuple(f"thinker.{value}" for value in values)
    inputs = PlanInputs(model=str(FIXTURES / model), devices=f"{devices}xH100", set_values=given)
    return make(inputs, HOST)


def test_a_cache_fits_a_device(toy: Toy) -> None:
    """Where nothing else is known, the cache alone is told of."""
    cache = {"kv_cache_memory_bytes": 79 * 10**9}
    assert toy.found(listed(cache)) == []
    too_large = {"kv_cache_memory_bytes": 81 * 10**9}
    found = toy.one(listed(too_large))
    assert found.code == "PL112"
    assert found.message == "the cache of `s0` needs 75.44 GiB, and a device has 74.51 GiB"
    unsized = replace(toy, devices=2, host=cuda("0", "1"))
    assert unsized.found(listed(too_large)) == []


def test_a_cache_and_the_weights_fit_a_device(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no engine estimates and the files tell the weights, both are added up."""
    known = catalog(TWO)
    blind = {"toy": replace(TOY, memory=lambda _given: None)}
    monkeypatch.setattr(
        toys, "catalog", lambda *_: replace(known, engines={**known.engines, **blind})
    )
    toy = replace(toy, facts=weighing(s0=8 * GIB))
    found = toy.one(listed({"tensor_parallel_size": 2, "kv_cache_memory_bytes": 76 * 10**9}))
    assert (found.code, found.message) == (
        "PL112",
        "cache and weights of `s0` need 74.78 GiB, and a device has 74.51 GiB",
    )


def test_a_stage_that_its_engine_refuses_is_counted_as_a_whole() -> None:
    """The sum is the one that the plan would have without the other mistake."""
    made = planned("qwen2_5_omni", 4, "kv_cache_memory_bytes=100000000000", "max_model_len=1000000")
    assert [each.code for each in made.diagnostics] == ["PL060", "PL112"]
    assert made.diagnostics[1].message == (
        "cache, weights and workspace of `thinker` need 108.9 GiB, and a device has 74.51 GiB"
    )


def test_of_a_stage_with_wrong_arguments_the_cache_alone_is_counted() -> None:
    """An engine that cannot be set up estimates nothing."""
    made = planned("qwen2_5_omni", 4, "kv_cache_memory_bytes=100000000000", "max_model_len=1")
    assert [each.code for each in made.diagnostics] == ["PL023", "PL112"]
    assert made.diagnostics[1].message.startswith("the cache of `thinker` needs 93.13 GiB")


def test_of_a_stage_with_wrong_axes_the_cache_alone_is_counted() -> None:
    """Nobody knows how its weights are cut; the cache is one rank's whatever they do."""
    for cache, told in ((75 * 10**9, []), (81 * 10**9, ["PL112"])):
        made = planned("qwen2_5_omni", 4, "tp=3", f"kv_cache_memory_bytes={cache}")
        assert [each.code for each in made.diagnostics if each.code == "PL112"] == told
        assert len(made.diagnostics) == 1 + len(told), made.diagnostics


def test_a_share_is_between_nothing_and_all(toy: Toy) -> None:
    """Zero is none."""
    for share in (0, 1.5, -0.1):
        [found] = toy.found(listed({SHARE: share}))
        assert found.startswith(f"CF013: `s0.{SHARE}` must be `0.01 to 1`")
