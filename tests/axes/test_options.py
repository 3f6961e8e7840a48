"""What each axis fills in, and the rules over its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from stagemesh.spec.axis import SIZE, Axis, Finding, Said, StackView
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.patterns import Policy, RouteByStage
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.registry import AXES

ALL = {axis.name: axis for axis in AXES.declarations()}
DIFFUSION, AR = ExecutionType.DIFFUSION, ExecutionType.LLM_AR


def settled(name: str, size: int | None, ranks: int = 1, **options: object) -> Said:
    """Let one axis fill in what was left out; it must be able to."""
    result = said(name, size, ranks, None, **options)
    assert isinstance(result, Said)
    return result


def said(
    name: str, size: int | None, ranks: int = 1, policy: Policy | None = None, **options: object
) -> Said | Finding:
    """Tell one axis what was said about it."""
    axis = ALL[name]
    given = Said(
        stage="dit",
        size=size,
        routing=axis.routing if policy is None else RouteByStage(policy=policy),
        options=axis.options(**options),
        ranks=ranks,
    )
    return axis.settle(given)


def look(
    name: str, view: Mapping[str, object], policy: Policy | None = None, **options: object
) -> tuple[list[str], list[str]]:
    """Return codes with the options at fault, and the skipped checks."""
    axis, skipped = ALL[name], list[str]()
    base = StackView(
        stage="dit",
        execution_type=DIFFUSION,
        sizes={},
        routing=axis.routing if policy is None else RouteByStage(policy=policy),
        options=axis.options(**options),
        facts=StageFacts(guidance=True),
        world=1,
        skip=skipped.append,
    )
    found = axis.check(replace(base, **view))  # type: ignore[arg-type]
    return [f"{each.code} {each.option}" for each in found], skipped


# --- what is filled in ----------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ALL.values(), ids=ALL)
def test_an_axis_leaves_a_size_and_the_defaults_as_they_are(axis: Axis) -> None:
    """Only `hsdp` has a default that stands for something else."""
    filled = settled(axis.name, 4)
    assert filled.size == 4
    assert filled.options == (axis.options(shard=4) if axis.supplies_world else axis.options())


@pytest.mark.parametrize(
    ("size", "ranks", "options", "expected"),
    [
        (None, 4, {}, (4, 4, 1)),
        (None, 4, {"replicate": 2}, (4, 2, 2)),
        (None, 1, {"shard": 8}, (8, 8, 1)),
        (None, 1, {"shard": 4, "replicate": 2}, (8, 4, 2)),
        (8, 8, {"replicate": 4}, (8, 2, 4)),
        (8, 1, {"shard": 2, "replicate": 4}, (8, 2, 4)),
    ],
)
def test_hsdp_makes_its_size_of_what_is_there(
    size: int | None, ranks: int, options: dict[str, int], expected: tuple[int, int, int]
) -> None:
    """Shard x replicate, or the ranks of the other axes; `-1` is what is left for the shard."""
    filled = settled("hsdp", size, ranks, **options)
    assert (filled.size, filled.options) == (
        expected[0],
        ALL["hsdp"].options(shard=expected[1], replicate=expected[2]),
    )


def test_hsdp_alone_asks_for_a_number_of_ranks() -> None:
    """Nothing says how many there should be."""
    finding = said("hsdp", None)
    assert isinstance(finding, Finding)
    assert finding.code == "AX040"
    assert "`hsdp_shard_size: 2`" in str(finding.help)


@pytest.mark.parametrize("name", ["dp", "stage_replica"])
def test_hash_fills_in_its_key_and_its_bound(name: str) -> None:
    """By the request itself, a quarter above the even share; other policies have neither."""
    options = ALL[name].options
    filled = said(name, 2, policy=Policy.HASH)
    assert isinstance(filled, Said)
    assert filled.options == options(key="request_id", load_bound=1.25)
    given = said(name, 2, policy=Policy.HASH, key="user", load_bound=2.0)
    assert isinstance(given, Said)
    assert given.options == options(key="user", load_bound=2.0)
    other = said(name, 2, policy=Policy.RANDOM)
    assert isinstance(other, Said)
    assert other.options == options()


# --- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dp", "stage_replica"])
def test_key_and_bound_are_refused_without_hash(name: str) -> None:
    """Together, as one word makes both well; one receiver is another matter (AX012)."""
    two: dict[str, object] = {"sizes": {name: 2}}
    assert look(name, two, key="user", load_bound=2.0) == (["AX048 key"], [])
    assert look(name, two, load_bound=2.0) == (["AX048 load_bound"], [])
    assert look(name, two, Policy.HASH, key="user", load_bound=2.0) == ([], [])
    assert look(name, {}, key="user", load_bound=2.0) == ([], [])


@pytest.mark.parametrize("name", ["dp", "stage_replica"])
@pytest.mark.parametrize("key", ["", "  "])
def test_a_key_of_hashing_has_a_name(name: str, key: str) -> None:
    """Nothing that a request says is called by no name, however it is routed."""
    two: dict[str, object] = {"sizes": {name: 2}}
    assert look(name, two, Policy.HASH, key=key) == (["AX049 key"], [])
    assert look(name, two, key=key) == (["AX049 key"], [])


@pytest.mark.parametrize(("local", "codes"), [(None, []), (4, []), (1, ["AX047 local"])])
def test_all_groups_of_dp_lie_on_one_host(local: int | None, codes: list[str]) -> None:
    """T29: ranks of other hosts cannot be placed, so a smaller local number is refused."""
    assert look("dp", {"sizes": {"dp": 4}}, local=local) == (codes, [])


@pytest.mark.parametrize(
    ("given", "sizes", "codes"),
    [
        (6, {"sp_ulysses": 2, "sp_ring": 3}, []),
        (99, {"sp_ulysses": 2, "sp_ring": 3}, ["AX041 sequence_parallel_size"]),
        (4, {}, ["AX041 sequence_parallel_size"]),
    ],
)
def test_a_sequence_parallel_size_can_only_repeat_the_product(
    given: int, sizes: dict[str, int], codes: list[str]
) -> None:
    """T60: it is derived, and a wrong one is an error, not recomputed."""
    assert look("sp_ulysses", {"sizes": sizes}, sequence_parallel_size=given) == (codes, [])


def test_permuting_the_exchange_needs_the_strict_layout() -> None:
    """The other mode has no equal parts to permute; alone there is nothing to exchange."""
    sizes = {"sizes": {"sp_ulysses": 2}, "facts": StageFacts(num_attention_heads=8)}
    assert look("sp_ulysses", sizes, a2a_permute=True) == (["AX042 a2a_permute"], [])
    assert look("sp_ulysses", sizes, a2a_permute=True, mode="strict") == ([], [])
    assert look("sp_ulysses", {}, a2a_permute=True) == ([], [])


@pytest.mark.parametrize(
    ("tp", "ulysses", "told"),
    [(2, 4, None), (4, 4, "a rank of `tp` has `14` heads: choose"), (3, 2, "choose sizes")],
)
def test_strict_ulysses_counts_the_heads_of_a_tp_rank(
    tp: int, ulysses: int, told: str | None
) -> None:
    """P67: 56 heads over 4 ranks leave 14, which 4 does not divide."""
    axis = ALL["sp_ulysses"]
    view = StackView(
        stage="dit",
        execution_type=DIFFUSION,
        sizes={"tp": tp, "sp_ulysses": ulysses},
        routing=axis.routing,
        options=axis.options(mode="strict"),
        facts=StageFacts(num_attention_heads=56),
        world=tp * ulysses,
        skip=pytest.fail,
    )
    helps = [str(each.help) for each in axis.check(view)]
    assert [text.startswith(told or "") for text in helps] == [True] * (told is not None)


@pytest.mark.parametrize(
    ("size", "branches", "codes", "is_skipped"),
    [
        (2, None, [], False),
        (2, 3, [], False),
        (3, 3, [], False),
        (4, 3, ["AX043 None"], False),
        (4, None, [], True),
        (1, 2, [], False),
    ],
)
def test_every_rank_of_cfg_needs_a_branch(
    size: int, branches: int | None, codes: list[str], *, is_skipped: bool
) -> None:
    """P72: branches may outnumber ranks, not the other way round; an unknown number is skipped."""
    found, skipped = look("cfg", {"sizes": {"cfg": size}}, branches=branches)
    assert (found, bool(skipped)) == (codes, is_skipped)


@pytest.mark.parametrize(
    ("view", "codes"),
    [
        ({"world": 4}, []),
        ({"world": 2}, ["AX045 text_encoder"]),
        ({"world": 4, "execution_type": AR}, ["AX044 text_encoder"]),
        ({"world": 4, "weight_folders": ("transformer", "text_encoder_2")}, []),
        ({"world": 4, "weight_folders": ("transformer", "vae")}, ["AX046 text_encoder"]),
        ({"world": 4, "facts": StageFacts(num_encoder_heads=6)}, ["AX030 text_encoder"]),
    ],
)
def test_the_text_encoder_is_shared_by_ranks_that_are_there(
    view: dict[str, object], codes: list[str]
) -> None:
    """P16: inside a diffusion stage that has one, over at most its ranks, by its heads."""
    known = {"facts": StageFacts(num_encoder_heads=64), **view}
    assert look("tp", known, text_encoder=4) == (codes, [])


def test_a_text_encoder_of_unknown_heads_is_not_checked() -> None:
    """The plan says so."""
    found, skipped = look("tp", {"world": 4}, text_encoder=4)
    assert found == []
    assert skipped == ["`text_encoder` of `dit`: the checkpoint does not give the encoder's heads"]


@pytest.mark.parametrize(
    ("size", "mode", "needed"),
    [
        (2, "tile", {"vae_use_tiling": True}),
        (2, "spatial_shard_height", {}),
        (1, "tile", {}),
    ],
)
def test_decoding_by_tiles_needs_tiling(size: int, mode: str, needed: dict[str, object]) -> None:
    """The other modes cut height or width."""
    axis = ALL["vae_pp"]
    assert axis.needs_fields(size, axis.options(mode=mode)) == needed


@pytest.mark.parametrize(
    ("size", "ep", "width", "codes", "num_skipped"),
    [
        (4, 1, 768, [], 0),
        (4, 1, 770, ["AX030 None"], 0),
        (4, 4, 770, [], 0),
        (4, 1, None, [], 1),
    ],
)
def test_tp_cuts_experts_unless_ep_keeps_them_whole(
    size: int, ep: int, width: int | None, codes: list[str], num_skipped: int
) -> None:
    """Their inner width has to divide like that of a dense block."""
    facts = StageFacts(
        num_attention_heads=32,
        num_kv_heads=4,
        hidden_size=2048,
        intermediate_size=8192,
        num_experts=128,
        moe_intermediate_size=width,
    )
    found, skipped = look("tp", {"sizes": {"tp": size, "ep": ep}, "facts": facts})
    assert (found, len(skipped)) == (codes, num_skipped)


@pytest.mark.parametrize("axis", ALL.values(), ids=ALL)
def test_the_chief_form_of_a_size_stands_for_the_defaults(axis: Axis) -> None:
    """So it can be written without saying its options; each other form says its own."""
    forms = [sets for sets in axis.deploy_fields if sets.member == SIZE]
    defaults = axis.options()
    for number, sets in enumerate(forms):
        agrees = all(getattr(defaults, name) == value for name, value in sets.implies.items())
        assert agrees is (number == 0)
