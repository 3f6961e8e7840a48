"""Stage fields that speak about axes: switches, options, forms of a size, and what meets what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from stagemesh.config.catalog import Model
from stagemesh.spec.pipeline import ExecutionType
from tests.config.speech import CATALOG, PIPELINE, Speech, size, stage, told

RING = "strategies: {thinker: [{axis: sp_ring, size: 2}]}"
STRICT = "strategies: {thinker: [{axis: sp_ulysses, size: 2, mode: strict}]}"
HSDP = "strategies: {thinker: [{axis: hsdp, size: 4, replicate: 2}]}"


DENOISING = replace(
    CATALOG,
    models=(
        Model(
            pipeline=replace(
                PIPELINE,
                stages=(
                    replace(PIPELINE.stages[0], execution_type=ExecutionType.DIFFUSION),
                    *PIPELINE.stages[1:],
                ),
            ),
            package="tests.config.shipped",
        ),
    ),
)
"""The thinker denoises."""


def deploy(fields: str) -> str:
    """Write fields of the thinker into a deploy file."""
    return f"stages: [{{stage_id: 0, {fields}}}]"


def typed(**fields: object) -> str:
    """Write fields of the thinker as overrides."""
    return json.dumps({"thinker": fields})


def options(speech: Speech, fields: str, axis: str) -> Mapping[str, object]:
    """Return the options of an axis that fields of a deploy file give."""
    loaded = speech.load(deploy=deploy(fields))
    given = stage(loaded, "thinker").axes[axis].options
    return {name: sourced.value for name, sourced in given.items()}


@pytest.mark.parametrize(
    ("fields", "axis", "expected", "given"),
    [
        ("ulysses_degree: 2, ulysses_mode: strict", "sp_ulysses", 2, {"mode": "strict"}),
        ("ulysses_a2a_permute: true", "sp_ulysses", None, {"a2a_permute": True}),
        ("sequence_parallel_size: 4", "sp_ulysses", None, {"sequence_parallel_size": 4}),
        ("ring_degree: 4", "sp_ring", 4, {}),
        ("allgather_degree: 4", "sp_ring", 4, {"exchange": "allgather"}),
        ("vae_patch_parallel_size: 2, vae_parallel_mode: tile", "vae_pp", 2, {"mode": "tile"}),
        ("text_encoder_tp_size: 2", "tp", None, {"text_encoder": 2}),
        ("data_parallel_size: 2, data_parallel_size_local: 2", "dp", 2, {"local": 2}),
        ("use_hsdp: true", "hsdp", None, {}),
        ("hsdp_shard_size: 4, use_hsdp: true", "hsdp", None, {"shard": 4}),
        ("use_hsdp: true, hsdp_replicate_size: 2", "hsdp", None, {"replicate": 2}),
    ],
)
def test_a_field_says_what_an_entry_of_a_strategy_would(
    speech: Speech, fields: str, axis: str, expected: int | None, given: dict[str, object]
) -> None:
    """P03: sizes, switches and options; an option alone leaves the size open."""
    loaded = speech.load(deploy=deploy(fields))
    assert told(loaded) == []
    assert size(loaded, "thinker", axis) == expected
    assert options(speech, fields, axis) == given


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            "ulysses_mode: fast",
            "CF013 deploy.yaml:1:38: `thinker.ulysses_mode` does not take `fast`",
        ),
        (
            "use_hsdp: 1, hsdp_shard_size: 4",
            "CF012 deploy.yaml:1:34: `thinker.use_hsdp` must be `true` or `false`, got `1`",
        ),
        (
            "sequence_parallel_size: 0",
            "CF013 deploy.yaml:1:48: `thinker.sequence_parallel_size` must be `>= 1`, got `0`",
        ),
        (
            "ring_degree: 0, allgather_degree: 2",
            "CF013 deploy.yaml:1:37: `thinker.ring_degree` must be `>= 1`, got `0`",
        ),
    ],
)
def test_a_wrong_value_is_told_once(speech: Speech, fields: str, message: str) -> None:
    """Whatever it would have gone with."""
    assert told(speech.load(deploy=deploy(fields))) == [message]


# --- forms of a size ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected", "exchange"),
    [
        ("ring_degree: 2, allgather_degree: 1", 2, None),
        ("ring_degree: 1, allgather_degree: 2", 2, "allgather"),
        ("allgather_degree: 2, ring_degree: 1", 2, "allgather"),
        ("allgather_degree: 1", None, None),
        ("ring_degree: null, allgather_degree: 2", 2, "allgather"),
        ("allgather_degree: 2, ring_degree: null", 2, "allgather"),
    ],
)
def test_a_form_of_degree_one_is_not_used(
    speech: Speech, fields: str, expected: int | None, exchange: str | None
) -> None:
    """The other one counts, whatever the order."""
    loaded = speech.load(deploy=deploy(fields))
    assert told(loaded) == []
    assert size(loaded, "thinker", "sp_ring") == expected
    assert options(speech, fields, "sp_ring").get("exchange") == exchange


def test_two_forms_above_one_are_an_error_with_both_places(speech: Speech) -> None:
    """T61: passed round or gathered, not both; in one layer or in two."""
    found = (
        "AX011 {}: `allgather_degree` = `4` is another form of `thinker.sp_ring` than was chosen"
    )
    one = speech.load(deploy=deploy("ring_degree: 2, allgather_degree: 4"))
    assert told(one) == [found.format("deploy.yaml:1:58")]
    assert [str(note.origin) for note in one.diagnostics[0].notes] == ["deploy.yaml:1:37"]
    two = speech.load(deploy=deploy("ring_degree: 2"), overrides=typed(allgather_degree=4))
    assert told(two) == [found.format("--stage-overrides")]
    below = speech.load(strategy=RING, deploy=deploy("allgather_degree: 4"))
    assert told(below) == [found.format("deploy.yaml:1:42")]
    unused = speech.load(strategy=RING.replace("2", "1"), deploy=deploy("allgather_degree: 4"))
    assert told(unused) == [found.format("deploy.yaml:1:42")]


def test_a_form_that_was_typed_wins_over_a_strategy_with_a_warning(speech: Speech) -> None:
    """As any typed value does."""
    loaded = speech.load(strategy=RING, overrides=typed(allgather_degree=4))
    assert told(loaded) == [
        (
            "AX007 --stage-overrides: `thinker.sp_ring.size` of the strategy, `2`,"
            " is replaced by `allgather_degree`"
        )
    ]
    assert size(loaded, "thinker", "sp_ring") == 4


# --- switches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("hsdp_shard_size: 8", "is not given"),
        ("hsdp_shard_size: 8, use_hsdp: false", "is `false`"),
        ("use_hsdp: false, hsdp_shard_size: 8", "is `false`"),
    ],
)
def test_an_option_of_an_axis_that_is_off_has_no_effect(
    speech: Speech, fields: str, why: str
) -> None:
    """P74: an error rather than a value that is lost, whatever the order."""
    loaded = speech.load(deploy=deploy(fields), catalog=DENOISING)
    (found,) = loaded.diagnostics
    assert found.code == "AX010"
    assert found.message == f"`hsdp_shard_size` of `thinker` has no effect: `use_hsdp` {why}"
    assert str(found.help) == "write `use_hsdp: true`, or leave `hsdp_shard_size` out"
    assert len(found.notes) == (why == "is `false`")
    assert loaded.settings is not None


@pytest.mark.parametrize(
    "fields",
    [
        "use_hsdp: false",
        "use_hsdp: false, hsdp_shard_size: -1, hsdp_replicate_size: 1",
        "hsdp_shard_size: -1",
        "hsdp_shard_size: null",
        "use_hsdp: null, hsdp_replicate_size: 1",
    ],
)
def test_a_default_of_an_axis_that_is_off_says_nothing(speech: Speech, fields: str) -> None:
    """A file may write down all fields."""
    loaded = speech.load(deploy=deploy(fields), catalog=DENOISING)
    assert told(loaded) == []
    assert "hsdp" not in stage(loaded, "thinker").axes


def test_who_switches_an_axis_off_means_its_options_too(speech: Speech) -> None:
    """In a higher layer; a lower `false` with an option above it is a mistake."""
    off = speech.load(
        deploy=deploy("use_hsdp: true, hsdp_shard_size: 8"),
        overrides=typed(use_hsdp=False),
        catalog=DENOISING,
    )
    assert told(off) == []
    late = speech.load(
        deploy=deploy("use_hsdp: false"), overrides=typed(hsdp_shard_size=8), catalog=DENOISING
    )
    assert [found.code for found in late.diagnostics] == ["AX010"]


@pytest.mark.parametrize("fields", ["use_hsdp: false", "hsdp_replicate_size: 1"])
def test_an_axis_that_is_left_off_has_to_fit_as_well(speech: Speech, fields: str) -> None:
    """What is said of a stage that could never have it would be lost."""
    loaded = speech.load(deploy=deploy(fields))
    [found] = loaded.diagnostics
    assert found.code == "AX020"
    assert found.message == "`hsdp` does not fit the `llm_ar` stage `thinker`"
    assert speech.load(deploy=deploy("hsdp_replicate_size: null")).diagnostics == ()


def test_who_leaves_an_axis_off_is_known(speech: Speech) -> None:
    """As who takes a value back: the default holds, and somebody has said so."""
    loaded = speech.load(deploy=deploy("use_hsdp: false"), catalog=DENOISING)
    [(path, said)] = stage(loaded, "thinker").cleared.items()
    assert (path, said.clears, str(said.origin)) == ("axes.hsdp.size", True, "deploy.yaml:1:34")


def test_an_option_of_a_lower_layer_joins_what_a_strategy_switches_on(speech: Speech) -> None:
    """Layers merge by member."""
    loaded = speech.load(
        strategy="strategies: {thinker: [{axis: hsdp, size: 8}]}",
        deploy=deploy("hsdp_replicate_size: 2"),
    )
    assert told(loaded) == []
    assert stage(loaded, "thinker").axes["hsdp"].options["replicate"].value == 2


def test_null_takes_back_an_option_or_a_whole_axis(speech: Speech) -> None:
    """Of lower layers, with everything that was said of it."""
    file = deploy("ulysses_degree: 2, ulysses_mode: strict, use_hsdp: true")
    option = speech.load(deploy=file, overrides=typed(ulysses_mode=None))
    assert stage(option, "thinker").axes["sp_ulysses"].options == {}
    axis = speech.load(deploy=file, overrides=typed(ulysses_degree=None, use_hsdp=None))
    assert stage(axis, "thinker").axes == {}


# --- a strategy and the layers around it ----------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "fields", "message"),
    [
        (
            STRICT,
            "ulysses_mode: advanced_uaa",
            "`thinker.sp_ulysses.mode` is `strict` here and `advanced_uaa` in the deploy file",
        ),
        (
            HSDP,
            "hsdp_replicate_size: 4",
            "`thinker.hsdp.replicate` is `2` here and `4` in the deploy file",
        ),
        (HSDP, "use_hsdp: false", "`thinker.hsdp` is `true` here and `false` in the deploy file"),
    ],
)
def test_a_different_option_in_the_deploy_file_is_an_error(
    speech: Speech, strategy: str, fields: str, message: str
) -> None:
    """An option is a value like the size."""
    loaded = speech.load(strategy=strategy, deploy=deploy(fields))
    (found,) = loaded.diagnostics
    assert (found.code, found.message) == ("AX006", message)
    assert f"remove `{fields.partition(':')[0]}` there" in str(found.help)


def test_a_typed_option_replaces_that_of_a_strategy_with_a_warning(speech: Speech) -> None:
    """Also when it is cleared."""
    for value, change in (("advanced_uaa", "replaced by `advanced_uaa`"), (None, "cleared")):
        loaded = speech.load(strategy=STRICT, overrides=typed(ulysses_mode=value))
        assert told(loaded) == [
            (
                "AX007 --stage-overrides: `thinker.sp_ulysses.mode` of the strategy, `strict`,"
                f" is {change}"
            )
        ]


def test_clearing_an_axis_is_told_once(speech: Speech) -> None:
    """At its size, not at each of its members."""
    loaded = speech.load(strategy=STRICT, overrides=typed(ulysses_degree=None))
    assert told(loaded) == [
        "AX007 --stage-overrides: `thinker.sp_ulysses.size` of the strategy, `2`, is cleared"
    ]
