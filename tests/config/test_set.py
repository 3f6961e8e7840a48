"""`--set STAGE.PATH=VALUE`, which is `--stage-overrides` in another spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stagemesh.spec.origin import Layer
from stagemesh.spec.patterns import Policy
from tests.config.speech import Speech, flag, size, stage, told, value


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("thinker.max_num_seqs=4", {"thinker": {"max_num_seqs": 4}}),
        ("0.max_num_seqs=4", {"0": {"max_num_seqs": 4}}),
        ("thinker.max_num_seqs=null", {"thinker": {"max_num_seqs": None}}),
        ("thinker.tp=2", {"thinker": {"tp": 2}}),
        ("thinker.tp=2", {"thinker": {"tensor_parallel_size": 2}}),
        ("thinker.tp.size=2", {"thinker": {"tp": {"size": 2}}}),
        ("talker.stage_replica=2", {"talker": {"num_replicas": 2}}),
        ("thinker.tp=null", {"thinker": {"tp": None}}),
        ("thinker.devices=0,1", {"thinker": {"devices": "0,1"}}),
        ("thinker.extra.a.b=[1, {c: 2}]", {"thinker": {"extra": {"a": {"b": [1, {"c": 2}]}}}}),
        ('thinker.env.MODE="1"', {"thinker": {"env": {"MODE": "1"}}}),
        ("thinker.enforce_eager=true", {"thinker": {"enforce_eager": True}}),
        ("thinker.quantization=a=b", {"thinker": {"quantization": "a=b"}}),
    ],
)
def test_it_says_what_an_override_says(
    speech: Speech, text: str, overrides: Mapping[str, object]
) -> None:
    """Values, mappings at any depth, axes by name, and `null`."""
    one, two = speech.load(set_values=(text,)), speech.load(overrides=overrides)
    assert told(one) == told(two) == []
    assert one.settings == two.settings


def test_text_stays_the_text_that_was_typed(speech: Speech) -> None:
    """What would be a number or a constant in a file needs no quotes where text is wanted."""
    loaded = speech.load(
        set_values=(
            "thinker.devices=0",
            "thinker.env.A=1",
            "thinker.env.B=true",
            "thinker.env.C=010",
            "talker.quantization=8",
        )
    )
    assert told(loaded) == []
    assert value(loaded, "thinker", "devices") == "0"
    assert value(loaded, "thinker", "env") == {"A": "1", "B": "true", "C": "010"}
    assert value(loaded, "talker", "quantization") == "8"


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("thinker.max_num_seqs", "write `10`"),
        ("thinker.share", "write `10`"),
        ("thinker.extra.a", 'write `10`, or `"010"` where text is meant'),
    ],
)
def test_a_number_with_a_zero_in_front_is_none(speech: Speech, path: str, remedy: str) -> None:
    """As in a file, unless nothing but text is wanted."""
    loaded = speech.load(set_values=(f"{path}=010",))
    assert told(loaded) == [f"CF005 --set {path}=010: a number must not begin with `0`, got `010`"]
    assert loaded.diagnostics[0].help == remedy


def test_every_door_refuses_a_number_with_a_zero_in_front(speech: Speech) -> None:
    """A flag does as a file and `--set` do."""
    typed = speech.load(fields=(flag("max_num_seqs", "010"),))
    written = speech.load(deploy="stages: [{stage_id: 0, max_num_seqs: 010}]")
    for loaded in (typed, written):
        [found] = loaded.diagnostics
        assert (found.code, found.message) == (
            "CF005",
            "a number must not begin with `0`, got `010`",
        )
        assert str(found.help).startswith("write `10`")


def test_digits_without_end_are_no_number(speech: Speech) -> None:
    """Whatever they begin with; they are never converted."""
    [found] = speech.load(set_values=(f"thinker.max_num_seqs=0{'9' * 5000}",)).diagnostics
    assert (found.code, found.help) == ("CF005", None)


def test_members_of_an_axis_are_set_by_name(speech: Speech) -> None:
    """Policy, options and size of what a strategy lays down; `null` takes one back."""
    loaded = speech.load(
        strategy="strategies: {thinker: [{axis: stage_replica, size: 2, routing: random}]}",
        set_values=(
            "thinker.stage_replica.routing=least-queue-length",
            "talker.stage_replica.routing=random",
            "code2wav.sp_ulysses.mode=strict",
        ),
    )
    assert told(loaded) == []
    replicas = stage(loaded, "thinker").axes["stage_replica"]
    assert replicas.routing is not None
    assert replicas.routing.value is Policy.LEAST_QUEUE
    assert size(loaded, "thinker", "stage_replica") == 2
    assert size(loaded, "talker", "stage_replica") is None
    assert stage(loaded, "code2wav").axes["sp_ulysses"].options["mode"].value == "strict"
    cleared = speech.load(
        strategy="strategies: {thinker: [{axis: stage_replica, size: 2, routing: random}]}",
        overrides={"thinker": {"stage_replica": {"routing": None, "size": None}}},
    )
    replicas = stage(cleared, "thinker").axes["stage_replica"]
    assert (replicas.routing, replicas.size) == (None, None)


def test_an_option_of_an_axis_may_be_taken_back(speech: Speech) -> None:
    """What is left is the default of the option; a strategy is not changed silently."""
    loaded = speech.load(
        strategy="strategies: {code2wav: [{axis: sp_ulysses, size: 2, mode: strict}]}",
        set_values=("code2wav.sp_ulysses.mode=null",),
    )
    assert [found.code for found in loaded.diagnostics] == ["AX007"]
    assert "mode" not in stage(loaded, "code2wav").axes["sp_ulysses"].options


def test_its_origin_is_what_was_typed(speech: Speech) -> None:
    """With the layer of single stages, above a flag for all stages in any order."""
    loaded = speech.load(
        set_values=("thinker.max_num_seqs=4",), fields=(flag("max_num_seqs", "9"),)
    )
    origin = stage(loaded, "thinker").fields["max_num_seqs"].origin
    assert (str(origin), origin.layer) == ("--set thinker.max_num_seqs=4", Layer.STAGE)
    assert value(loaded, "talker", "max_num_seqs") == 9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thinker.max_num_seqs", "CF066 {0}: `--set` `thinker.max_num_seqs` has no `=`"),
        ("thinker.max_num_seqs=", "CF066 {0}: `--set` `thinker.max_num_seqs=` has no value"),
        ("max_num_seqs=4", "CF066 {0}: `--set` `max_num_seqs=4` has no path"),
        ("thinker..x=4", "CF066 {0}: `--set` `thinker..x=4` has no path"),
        ("=4", "CF066 {0}: `--set` `=4` has no path"),
        ("thinker.max_num_seqs=[", "CF002 {0}: not valid YAML: "),
        ("thinker.max_num_seqs=1\nx: 2", "CF002 {0}: not valid YAML: more than one value"),
        ("thinkr.max_num_seqs=1", "CF020 {0}: no stage `thinkr` in this pipeline"),
        ("9.max_num_seqs=1", "CF020 {0}: no stage `9` in this pipeline"),
        ("thinker.max_num_seq=1", "CF010 {0}: unknown key `max_num_seq` in `thinker`"),
        ("thinker.max_num_seqs=true", "CF012 {0}: `thinker.max_num_seqs` must be a whole number"),
        ("thinker.max_num_seqs.x=1", "CF012 {0}: `thinker.max_num_seqs` must be a whole number"),
        ("thinker.tp=0", "CF013 {0}: `thinker.tp` must be `>= 1`, got `0`"),
        ("thinker.tp.size=x", "CF012 {0}: `thinker.tp.size` must be a whole number"),
        ("thinker.tp.routing=random", "CF010 {0}: unknown key `routing` in `thinker.tp`"),
        ("thinker.dp.routing=hash_", "AX004 {0}: `thinker.dp.routing` does not take `hash_`"),
        ("thinker.dp.routing=3", "CF012 {0}: `thinker.dp.routing` must be text, got `3`"),
        ("thinker.sp_ulysses.mode=x", "CF013 {0}: `thinker.sp_ulysses.mode` does not take `x`"),
        ("thinker.dp.routing=.nan", "CF005 {0}: a number must be finite, got `nan`"),
        ("thinker.tp=.nan", "CF005 {0}: a number must be finite, got `nan`"),
    ],
)
def test_each_mistake_is_told_once_with_what_was_typed(
    speech: Speech, text: str, expected: str
) -> None:
    """Nothing that was typed is ignored."""
    loaded = speech.load(set_values=(text,))
    (found,) = told(loaded)
    assert found.startswith(expected.format(f"--set {text}"))
    assert loaded.settings is None


@pytest.mark.parametrize(
    ("one", "two", "name"),
    [
        ("thinker.max_num_seqs=3", "0.max_num_seqs=4", "thinker.max_num_seqs"),
        ("thinker.tp=2", "thinker.tensor_parallel_size=4", "thinker.tp.size"),
        ("thinker.tp=2", "thinker.tp=null", "thinker.tp"),
        ("thinker.env.A=1", "thinker.env=null", "thinker.env"),
        ("thinker.extra.a=1", "thinker.extra.a.b=1", "thinker.extra.a"),
        ("thinker.sp_ulysses.mode=strict", "thinker.sp_ulysses.mode=advanced_uaa", None),
    ],
)
def test_two_values_for_one_path_are_an_error_that_names_both(
    speech: Speech, one: str, two: str, name: str | None
) -> None:
    """Neither comes before the other, so the order changes nothing but who is told first."""
    for texts in ((one, two), (two, one)):
        loaded = speech.load(set_values=texts)
        (found,) = loaded.diagnostics
        assert found.code == "CF067"
        assert found.message.startswith(f"`{name or 'thinker.sp_ulysses.mode'}` is ")
        assert (str(found.origin), str(found.notes[0].origin)) == (
            f"--set {texts[1]}",
            f"--set {texts[0]}",
        )


def test_an_override_and_a_set_value_must_agree(speech: Speech) -> None:
    """Equal ones do, and they merge with others of the same mapping."""
    overrides = {"thinker": {"max_num_seqs": 3, "env": {"A": "a"}}}
    agreed = speech.load(
        overrides=overrides, set_values=("thinker.max_num_seqs=3", "thinker.env.B=b")
    )
    assert told(agreed) == []
    assert value(agreed, "thinker", "env") == {"A": "a", "B": "b"}
    (found,) = speech.load(overrides=overrides, set_values=("0.max_num_seqs=4",)).diagnostics
    assert (found.code, str(found.notes[0].origin)) == ("CF067", "stage_overrides")
    assert found.message == "`thinker.max_num_seqs` is `4` here and `3` elsewhere"


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ({"set_values": ("a.seed=1", "b.seed=2")}, 2),
        (
            {"set_values": ("a.tp=2", "b.tp=4"), "overrides": {"c": {"seed": 1}, "d": {"seed": 2}}},
            4,
        ),
        (
            {
                "deploy": "stages: [{stage_id: 7, env: {A: b}, extra: {a: 1}},"
                " {stage_id: 8, env: {A: c}, extra: {a: {b: 1}}}]"
            },
            2,
        ),
        (
            {
                "deploy": "stages: [{stage_id: 7, tensor_parallel_size: 2}]",
                "strategy": "strategies: {a: [{axis: tp, size: 4}]}",
                "set_values": ("b.tp=8",),
            },
            3,
        ),
    ],
)
def test_stages_that_are_not_there_contradict_nobody(
    speech: Speech, given: Mapping[str, Any], codes: int
) -> None:
    """They are not one stage because none of them is any."""
    loaded = speech.load(**given)
    assert [found.code for found in loaded.diagnostics] == ["CF020"] * codes


def test_of_an_unknown_model_only_the_form_is_judged(speech: Speech) -> None:
    """Stages cannot be told, so none is missing and none is said twice."""
    speech.configure({"model_type": "unknown"})
    loaded = speech.load(
        set_values=("any.max_num_seqs=1", "other.max_num_seqs=2", "other.max_num_seqs=x"),
        fields=(flag("cfg_parallel_size", "2"), flag("max_num_seqs", "x")),
    )
    assert [found.code for found in loaded.diagnostics] == ["MD008", "CF012", "CF012"]
    assert loaded.settings is None


@pytest.mark.parametrize(
    ("text", "codes"),
    [("x.y=3", ["CF020"]), ("x.max_num_seqs=-3", ["CF020", "CF013"])],
)
def test_of_a_stage_that_is_not_there_no_field_is_called_unknown(
    speech: Speech, text: str, codes: list[str]
) -> None:
    """One mistake is told once; a value that no stage takes is another."""
    found = speech.load(set_values=(text,)).diagnostics
    assert [each.code for each in found] == codes
