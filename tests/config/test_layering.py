"""A strategy is the single writer of its axes: conflicts below it, replacements above it."""

from __future__ import annotations

import pytest

from stagemesh.spec.unset import UNSET
from tests.config.speech import Speech, size, stage, told

TP2 = "strategies: {thinker: [{axis: tp, size: 2}]}"
EP4 = "strategies: {thinker: [{axis: ep, size: 4}]}"


def deploy(fields: str) -> str:
    """Write fields of the thinker into a deploy file."""
    return f"stages: [{{stage_id: 0, {fields}}}]"


@pytest.mark.parametrize(
    ("strategy", "fields", "message"),
    [
        (
            TP2,
            "tensor_parallel_size: 4",
            "`thinker.tp.size` is `2` here and `4` in the deploy file",
        ),
        (
            TP2,
            "tensor_parallel_size: 1",
            "`thinker.tp.size` is `2` here and `1` in the deploy file",
        ),
        (
            "strategies: {thinker: [{axis: stage_replica, size: 2}]}",
            "num_replicas: 1",
            "`thinker.stage_replica.size` is `2` here and `1` in the deploy file",
        ),
        (
            EP4,
            "enable_expert_parallel: false",
            "`thinker.ep` is `true` here and `false` in the deploy file",
        ),
    ],
)
def test_a_different_value_in_the_deploy_file_is_an_error_with_both_places(
    speech: Speech, strategy: str, fields: str, message: str
) -> None:
    """T3, T4: an explicit 1 is a value like any other."""
    loaded = speech.load(strategy=strategy, deploy=deploy(fields))
    (found,) = loaded.diagnostics
    assert (found.code, found.message) == ("AX006", message)
    assert found.origin is not None
    assert found.origin.source == "strategy.yaml"
    assert found.notes[0].origin is not None
    assert found.notes[0].origin.source == "deploy.yaml"
    assert str(found.help).startswith("remove `")
    assert loaded.settings is None


@pytest.mark.parametrize(
    ("strategy", "fields"),
    [
        (TP2, "tensor_parallel_size: 2"),
        (TP2, "tensor_parallel_size: null"),
        (TP2, "pipeline_parallel_size: 2"),
        (EP4, "enable_expert_parallel: true"),
        (EP4, "enable_expert_parallel: null"),
    ],
)
def test_an_equal_or_absent_value_is_no_conflict(
    speech: Speech, strategy: str, fields: str
) -> None:
    """T3: saying the same twice is fine, and null is not a value to conflict with."""
    loaded = speech.load(strategy=strategy, deploy=deploy(fields))
    assert told(loaded) == []
    assert (
        stage(loaded, "thinker").axes["tp" if strategy == TP2 else "ep"].origin.source
        == "strategy.yaml"
    )


def test_the_models_own_deploy_file_can_conflict_as_well(speech: Speech) -> None:
    """What ships with a model is explicit, too; its short name is the place."""
    loaded = speech.load(strategy="strategies: {thinker: [{axis: pp, size: 2}]}", deploy=UNSET)
    (found,) = loaded.diagnostics
    assert found.code == "AX006"
    assert str(found.notes[0].origin) == "speech.yaml:6:29"


def test_the_strategy_is_set_apart_from_other_stages(speech: Speech) -> None:
    """The same axis on another stage is no conflict."""
    loaded = speech.load(strategy=TP2, deploy="stages: [{stage_id: 1, tensor_parallel_size: 4}]")
    assert told(loaded) == []
    assert (size(loaded, "thinker", "tp"), size(loaded, "talker", "tp")) == (2, 4)


@pytest.mark.parametrize(
    ("strategy", "overrides", "message", "axis", "left"),
    [
        (
            TP2,
            '{"0": {"tensor_parallel_size": 4}}',
            "`thinker.tp.size` of the strategy, `2`, is replaced by `4`",
            "tp",
            4,
        ),
        (
            TP2,
            '{"0": {"tensor_parallel_size": null}}',
            "`thinker.tp.size` of the strategy, `2`, is cleared",
            "tp",
            UNSET,
        ),
        (
            EP4,
            '{"0": {"enable_expert_parallel": false}}',
            "`thinker.ep` of the strategy, `true`, is replaced by `false`",
            "ep",
            UNSET,
        ),
    ],
)
def test_what_was_typed_wins_with_a_warning(
    speech: Speech, strategy: str, overrides: str, message: str, axis: str, left: object
) -> None:
    """T12, T13: the warning names both places, and the typed value holds."""
    loaded = speech.load(strategy=strategy, overrides=overrides)
    (found,) = loaded.diagnostics
    assert (found.code, found.message, found.is_error) == ("AX007", message, False)
    assert str(found.origin) == "--stage-overrides"
    assert found.notes[0].origin is not None
    assert found.notes[0].origin.source == "strategy.yaml"
    assert size(loaded, "thinker", axis) == left


def test_typing_what_the_strategy_says_is_no_warning(speech: Speech) -> None:
    """Equal values replace nothing."""
    for strategy, overrides in (
        (TP2, '{"0": {"tensor_parallel_size": 2}}'),
        (EP4, '{"0": {"enable_expert_parallel": true}}'),
    ):
        assert told(speech.load(strategy=strategy, overrides=overrides)) == []


def test_a_typed_size_keeps_the_rest_of_the_entry(speech: Speech) -> None:
    """The policy and the label of the strategy stay."""
    loaded = speech.load(
        strategy="strategies:\n"
        "  thinker: [{axis: stage_replica, size: 2, routing: random, name: r}]\n",
        overrides='{"0": {"num_replicas": 4}}',
    )
    axis = stage(loaded, "thinker").axes["stage_replica"]
    assert axis.size is not None
    assert axis.routing is not None
    assert (axis.size.value, axis.routing.value.value, axis.label) == (4, "random", "r")
    assert [item.value for item in axis.size.superseded] == [2]


def test_a_refused_value_does_not_conflict_as_well(speech: Speech) -> None:
    """One cause, one diagnostic, whichever side is wrong."""
    for strategy, fields in (
        (TP2.replace("2", "x"), "tensor_parallel_size: 4"),
        (TP2, "tensor_parallel_size: x"),
    ):
        loaded = speech.load(strategy=strategy, deploy=deploy(fields))
        assert [found.code for found in loaded.diagnostics] == ["CF012"]
    loaded = speech.load(strategy=TP2, overrides='{"0": {"tensor_parallel_size": "x"}}')
    assert [found.code for found in loaded.diagnostics] == ["CF012"]
    loaded = speech.load(deploy=deploy("tuning: 3"), overrides='{"0": {"tuning": {"level": 1}}}')
    assert [found.code for found in loaded.diagnostics] == ["CF012"]
    loaded = speech.load(deploy=deploy("tuning: {level: 1}"), overrides='{"0": {"tuning": 3}}')
    assert [found.code for found in loaded.diagnostics] == ["CF012"]
