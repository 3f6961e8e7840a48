"""Strategy files: what is read, and each entry of the catalogue of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.spec.axis import Owner
from stagemesh.spec.origin import Layer
from stagemesh.spec.patterns import Policy
from stagemesh.spec.unset import UNSET
from tests.config.speech import Speech, size, stage, told


def entry(text: str) -> str:
    """Put one entry of the thinker into a strategy file."""
    return f"strategies:\n  thinker:\n    - {text}\n"


def test_an_axis_is_written_to_its_stage_alone(speech: Speech) -> None:
    """T1: a strategy writes what it declares and nothing else."""
    loaded = speech.load(strategy=entry("{axis: tp, size: 2}"))
    assert told(loaded) == []
    assert size(loaded, "thinker", "tp") == 2
    assert stage(loaded, "talker").axes == {}
    assert stage(loaded, "thinker").fields == {}
    settings = stage(loaded, "thinker").axes["tp"]
    assert settings.size is not None
    assert str(settings.size.origin) == "strategy.yaml:3:24"
    assert str(settings.origin) == "strategy.yaml:3:14"
    assert settings.origin.layer is Layer.STRATEGY
    assert (settings.label, settings.routing, settings.owner) == ("tp", None, None)


def test_a_replica_axis_carries_its_policy_owner_label_and_options(speech: Speech) -> None:
    """T2: everything an entry can say is in the settings, with its place."""
    loaded = speech.load(
        strategy="strategies:\n"
        "  talker:\n"
        "    - {axis: stage_replica, size: 2, routing: least-queue-length, l1_owner: delegated,"
        " name: twins}\n"
        "    - {axis: stage_pp, size: 3, unit: chunks}\n"
    )
    replicas, pipelining = stage(loaded, "talker").axes.values()
    assert replicas.routing is not None
    assert replicas.owner is not None
    assert replicas.routing.value is Policy.LEAST_QUEUE
    assert replicas.routing.origin.path == "strategies.talker[0].routing"
    assert (replicas.owner.value, replicas.label) == (Owner.DELEGATED, "twins")
    assert pipelining.options["unit"].value == "chunks"
    assert str(pipelining.options["unit"].origin) == "strategy.yaml:4:39"


@pytest.mark.parametrize("spelling", ["round_robin", "round-robin"])
def test_both_spellings_of_a_policy_are_read(speech: Speech, spelling: str) -> None:
    """A file may use the words of either document."""
    loaded = speech.load(strategy=entry(f"{{axis: dp, size: 2, routing: {spelling}}}"))
    routing = stage(loaded, "thinker").axes["dp"].routing
    assert routing is not None
    assert routing.value is Policy.ROUND_ROBIN


def test_policies_are_per_stage(speech: Speech) -> None:
    """T7: two stages may have different ones."""
    loaded = speech.load(
        strategy="strategies:\n"
        "  thinker: [{axis: stage_replica, size: 2, routing: random}]\n"
        "  talker: [{axis: stage_replica, size: 2, routing: least_queue}]\n"
    )
    assert told(loaded) == []


def test_optional_keys_that_are_null_are_as_if_not_given(speech: Speech) -> None:
    """`routing`, `l1_owner` and `name` may be null."""
    loaded = speech.load(
        strategy=entry("{axis: tp, size: 1, routing: ~, l1_owner: null, name: null}")
    )
    assert told(loaded) == []
    assert stage(loaded, "thinker").axes["tp"].label == "tp"


def test_a_stage_may_have_an_empty_stack(speech: Speech) -> None:
    """An empty list says nothing, about a stage that exists."""
    assert told(speech.load(strategy="strategies: {thinker: []}")) == []
    assert told(speech.load(strategy="strategies: {}")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "CF004 strategy.yaml: expected a mapping with `strategies`, got nothing"),
        ("- a", "CF004 strategy.yaml: expected a mapping with `strategies`, got a list"),
        ("hello", "CF004 strategy.yaml: expected a mapping with `strategies`, got a single value"),
        ("{}", "CF011 strategy.yaml:1:1: `strategies` is missing"),
        ("thinker: [{axis: tp, size: 2}]", "CF011 strategy.yaml:1:1: `strategies` is missing"),
        (
            "strategies: {}\nstrategy: {}",
            "CF010 strategy.yaml:2:1: unknown key `strategy` in `strategy.yaml`",
        ),
        (
            "strategies: ~",
            (
                "CF012 strategy.yaml:1:13: `strategies` must be a mapping from stage names"
                " to lists of axes, got `null`"
            ),
        ),
        (
            "strategies:\n  thinker: {axis: tp, size: 2}",
            "CF012 strategy.yaml:2:12: `thinker` must be a list of axes, got a mapping",
        ),
        (
            "strategies:\n  thinker: ~",
            "CF012 strategy.yaml:2:12: `thinker` must be a list of axes, got `null`",
        ),
        (
            "strategies:\n  thinker:\n    - tp",
            (
                "CF012 strategy.yaml:3:7: `thinker[0]` must be a mapping with `axis` and `size`,"
                " got text `tp`"
            ),
        ),
        ("strateges: {}", "CF010 strategy.yaml:1:1: unknown key `strateges` in `strategy.yaml`"),
        (entry("{axs: tp, size: 2}"), "CF010 strategy.yaml:3:8: unknown key `axs` in `thinker[0]`"),
        (
            entry("{axis: tp, sze: 2}"),
            "CF010 strategy.yaml:3:18: unknown key `sze` in `thinker.tp`",
        ),
        (entry("{size: 2}"), "CF011 strategy.yaml:3:7: `thinker[0].axis` is missing"),
        (entry("{axis: tp}"), "CF011 strategy.yaml:3:7: `thinker.tp.size` is missing"),
        (
            entry("{axis: tp, size: two}"),
            "CF012 strategy.yaml:3:24: `thinker.tp.size` must be a whole number, got text `two`",
        ),
        (
            entry('{axis: tp, size: "2"}'),
            "CF012 strategy.yaml:3:24: `thinker.tp.size` must be a whole number, got text `2`",
        ),
        (
            entry("{axis: tp, size: 2.7}"),
            "CF012 strategy.yaml:3:24: `thinker.tp.size` must be a whole number, got `2.7`",
        ),
        (
            entry("{axis: tp, size: true}"),
            "CF012 strategy.yaml:3:24: `thinker.tp.size` must be a whole number, got `true`",
        ),
        (
            entry("{axis: tp, size: null}"),
            "CF012 strategy.yaml:3:24: `thinker.tp.size` must be a whole number, got `null`",
        ),
        (
            entry("{axis: tp, size: 0}"),
            "CF013 strategy.yaml:3:24: `thinker.tp.size` must be `>= 1`, got `0`",
        ),
        (
            entry("{axis: tp, size: -1}"),
            "CF013 strategy.yaml:3:24: `thinker.tp.size` must be `>= 1`, got `-1`",
        ),
        (
            entry("{axis: TP, size: 2}"),
            "AX001 strategy.yaml:3:14: unknown axis `TP` for `thinker`",
        ),
        (
            entry("{axis: 2, size: 2}"),
            "CF012 strategy.yaml:3:14: `thinker[0].axis` must be text, got `2`",
        ),
        (
            entry("{axis: tp, size: 2, routing: random}"),
            (
                "AX003 strategy.yaml:3:36: `thinker.tp` takes no `routing`,"
                " the routing of `tp` is fixed"
            ),
        ),
        (
            entry("{axis: dp, size: 2, routing: hush}"),
            "AX004 strategy.yaml:3:36: `thinker.dp.routing` does not take `hush`",
        ),
        (
            entry("{axis: stage_replica, size: 2, routing: bogus}"),
            "AX004 strategy.yaml:3:47: `thinker.stage_replica.routing` does not take `bogus`",
        ),
        (
            entry("{axis: dp, size: 2, routing: ''}"),
            "AX004 strategy.yaml:3:36: `thinker.dp.routing` does not take ``",
        ),
        (
            entry("{axis: dp, size: 2, routing: 3}"),
            "CF012 strategy.yaml:3:36: `thinker.dp.routing` must be text, got `3`",
        ),
        (
            entry("{axis: dp, size: 2, l1_owner: delegated}"),
            "AX005 strategy.yaml:3:37: `thinker.dp` is owned by `engine`, which cannot be changed",
        ),
        (
            entry("{axis: stage_replica, size: 2, l1_owner: engine}"),
            (
                "AX005 strategy.yaml:3:48: `thinker.stage_replica` is owned by `delegated`,"
                " which cannot be changed"
            ),
        ),
        (
            entry("{axis: tp, size: 2, l1_owner: me}"),
            "CF013 strategy.yaml:3:37: `thinker.tp.l1_owner` does not take `me`",
        ),
        (
            entry("{axis: tp, size: 2, routng: x}"),
            "CF010 strategy.yaml:3:27: unknown key `routng` in `thinker.tp`",
        ),
        (
            entry("{axis: sp_ulysses, size: 2, mode: fast}"),
            "CF013 strategy.yaml:3:41: `thinker.sp_ulysses.mode` does not take `fast`",
        ),
        (
            entry("{axis: dp, size: 2, routing: hash, key: 3}"),
            "CF012 strategy.yaml:3:47: `thinker.dp.key` must be text, got `3`",
        ),
        (
            entry("{axis: dp, size: 2, routing: hash, load_bound: 0.5}"),
            "CF013 strategy.yaml:3:54: `thinker.dp.load_bound` must be `>= 1`, got `0.5`",
        ),
        (
            entry("{axis: tp, size: 2, layer_hook_specs: [{hook_id: h}]}"),
            "CF011 strategy.yaml:3:46: `thinker.tp.layer_hook_specs[0].target` is missing",
        ),
        (
            entry("{axis: tp, size: 2, kernel_specs: k}"),
            "CF012 strategy.yaml:3:41: `thinker.tp.kernel_specs` must be a list, got text `k`",
        ),
        (
            "strategies:\n  0: [{axis: tp, size: 2}]",
            "CF022 strategy.yaml:2:3: stage `0` is given by number, a strategy names stages",
        ),
        (
            "strategies:\n  thinkr: []",
            "CF020 strategy.yaml:2:3: no stage `thinkr` in this pipeline",
        ),
        (
            "strategies:\n  thinker: []\n  thinker: []",
            "CF003 strategy.yaml:3:3: key `thinker` is given twice",
        ),
    ],
)
def test_each_mistake_is_told_once_with_its_place(speech: Speech, text: str, expected: str) -> None:
    """T21, T22 and the catalogue of mistakes: one diagnostic each."""
    loaded = speech.load(strategy=text)
    assert told(loaded) == [expected]
    assert loaded.settings is None
    assert len(loaded.diagnostics[0].message) <= 100


def test_a_file_that_cannot_be_read_is_told_with_its_name(speech: Speech) -> None:
    """Missing, a folder, or no YAML; the rest of the input is still looked at."""
    (speech.folder / "bad.yaml").write_text("strategies: [", encoding="utf-8")
    for name, found in (
        ("gone.yaml", "CF001 gone.yaml: cannot be read: no such file or directory"),
        (".", "CF001 .: cannot be read: is a directory"),
        ("bad.yaml", "CF002 bad.yaml:2:1: not valid YAML: "),
    ):
        loaded = speech.load(strategy=Path(name), overrides='{"nobody": {}}')
        first, second = told(loaded)
        assert first.startswith(found)
        assert second.startswith("CF020 --stage-overrides")


def test_an_axis_given_twice_points_to_the_first(speech: Speech) -> None:
    """T17: both places are named, and the sizes are not multiplied."""
    loaded = speech.load(
        strategy="strategies:\n  thinker:\n    - {axis: tp, size: 2}\n    - {size: 2, axis: tp}\n"
    )
    assert told(loaded) == ["AX002 strategy.yaml:4:23: axis `tp` is given twice for `thinker`"]
    (note,) = loaded.diagnostics[0].notes
    assert str(note.origin) == "strategy.yaml:3:14"


def test_help_says_what_to_write_instead(speech: Speech) -> None:
    """The remedies of the most likely mistakes."""
    texts = {
        "{}": "`strategies: {thinker: [{axis: tp, size: 2}]}`",
        "talker: [{axis: tp, size: 4}]": "`strategies: {talker: [{axis: tp, size: 4}]}`",
        "talker: [{axis: tp, size: 4, name: " + "x" * 40 + "}]": "`strategies: {thinker: [{",
        "strategies: {0: []}": "`thinker` (0), `talker` (1), `code2wav` (2)",
        "strategies: {thinkr: []}": "did you mean `thinker`? stages of `speech`: `thinker` (0),",
        "strategies: {x: []}": "stages of `speech`: `thinker` (0), `talker` (1), `code2wav` (2)",
        entry("{axis: stage_replic, size: 2}"): "did you mean `stage_replica`?",
        entry("{axis: pp, size: 2, routing: random}"): "`dp`, `stage_replica`",
        entry("{axis: dp, size: 2, routing: x}"): "`least_queue`, `random`, `round_robin`",
        entry("{axis: dp, size: 2, l1_owner: delegated}"): "axes of that owner: `stage_replica`",
        entry("{axis: tp, size: 2, l1_owner: delegated}"): "write `engine` or leave `l1_owner` out",
    }
    for text, help_text in texts.items():
        (found,) = speech.load(strategy=text).diagnostics
        assert help_text in str(found.help)


def test_a_rewrite_leaves_out_what_was_refused(speech: Speech) -> None:
    """The value was told at its own place, and there is nothing to show."""
    _, found = speech.load(strategy="talker: [{axis: tp, size: 04}]").diagnostics
    assert "`strategies: {talker: [{axis: tp, size: ...}]}`" in str(found.help)


def test_all_mistakes_of_a_file_are_told_in_its_order(speech: Speech) -> None:
    """Also those of an entry whose axis or stage is unknown."""
    loaded = speech.load(
        strategy="strategies:\n"
        "  thinkr:\n"
        "    - {axis: tp, size: 0}\n"
        "  talker:\n"
        "    - {axis: tq, size: x, name: 3}\n"
        "    - {axis: dp, size: 2, routing: a, l1_owner: delegated, b: 1}\n"
        "extra: 1\n"
    )
    assert [found.partition(": ")[0] for found in told(loaded)] == [
        "CF010 strategy.yaml:7:1",
        "CF020 strategy.yaml:2:3",
        "CF013 strategy.yaml:3:24",
        "AX001 strategy.yaml:5:14",
        "CF012 strategy.yaml:5:24",
        "CF012 strategy.yaml:5:33",
        "AX004 strategy.yaml:6:36",
        "AX005 strategy.yaml:6:49",
        "CF010 strategy.yaml:6:60",
    ]


def test_a_python_mapping_is_read_like_a_file(speech: Speech) -> None:
    """The same mistakes, without lines."""
    good = speech.load(strategy={"strategies": {"thinker": [{"axis": "tp", "size": 2}]}})
    assert size(good, "thinker", "tp") == 2
    bad = speech.load(strategy={"strategies": {"thinker": [{"axis": "tp", "size": 2.0}]}})
    assert told(bad) == [
        "CF012 strategy_config: `thinker.tp.size` must be a whole number, got `2.0`"
    ]
    assert size(good, "thinker", "pp") is UNSET


def test_only_axes_that_fit_a_stage_are_offered_for_it(speech: Speech) -> None:
    """Of a stage that is not known, all are."""
    loaded = speech.load(
        strategy="strategies: {thinker: [{axis: zz, size: 2}], nobody: [{axis: zz, size: 2}]}"
    )
    known, unknown = (str(each.help) for each in loaded.diagnostics if each.code == "AX001")
    assert "`cp`" in known
    assert "`cfg`" not in known
    assert "`cfg`" in unknown
