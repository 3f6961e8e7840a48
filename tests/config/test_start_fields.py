"""Default request parameters by stage, and one policy for all replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.config.inputs import PlanInputs, python_fields
from stagemesh.spec.patterns import Policy
from tests.config.flagged import codes_of, made_from, planned, python_made, value_in
from tests.config.speech import Speech, flag, stage, told, value

DEFAULTS = "default_sampling_params"


def test_parameters_are_given_by_name_or_number_and_merge_by_key(speech: Speech) -> None:
    """S2: `extra_args` too; the flag wins over the file."""
    deploy = (
        "stages: [{stage_id: 0, default_sampling_params:"
        " {temperature: 1.0, top_k: 3, extra_args: {a: 1, b: 2}}}]"
    )
    text = '{"thinker": {"temperature": 0.5, "extra_args": {"b": 3}}, "1": {"seed": 7}}'
    loaded = speech.load(deploy=deploy, fields=(flag(DEFAULTS, text),))
    assert told(loaded) == []
    assert value(loaded, "thinker", DEFAULTS) == {
        "temperature": 0.5,
        "top_k": 3,
        "extra_args": {"a": 1, "b": 3},
    }
    assert value(loaded, "talker", DEFAULTS) == {"seed": 7}
    parts = stage(loaded, "thinker").fields[DEFAULTS].parts
    assert str(parts["temperature"].origin) == "--default-sampling-params"
    assert str(parts["top_k"].origin).startswith("deploy.yaml:1:")


def test_a_request_wins_over_the_flag_and_the_flag_over_the_file(tmp_path: Path) -> None:
    """The plan holds what a request starts from."""
    made = made_from(
        tmp_path,
        """--default-sampling-params '{"front": {"temperature": 0.5}}'""",
        deploy={"stages": [{"stage_id": 0, DEFAULTS: {"temperature": 1.0, "max_tokens": 9}}]},
    )
    plan = planned(made)
    assert plan.stages[0].sampling == {"temperature": 0.5, "max_tokens": 9}


def test_parameters_of_an_only_stage_may_stand_alone(tmp_path: Path) -> None:
    """By stage they may be given as well."""
    for text in ('{"temperature": 0.5}', '{"0": {"temperature": 0.5}}'):
        made = made_from(tmp_path, f"--default-sampling-params '{text}'", model="solo")
        assert value_in(planned(made), "front.sampling.temperature") == 0.5
    made = made_from(tmp_path, "--default-sampling-params '{}'", model="solo")
    assert planned(made).stages[0].sampling == {}


@pytest.mark.parametrize(
    ("text", "told_is"),
    [
        ("{", "CF002 --default-sampling-params:1:2: not valid JSON: expecting property name"),
        ("[]", "CF004 --default-sampling-params: expected a JSON object, got a list"),
        (
            '{"temperature": 0.5}',
            "CF070 --default-sampling-params: `--default-sampling-params` must say of which stage ",
        ),
        ('{"thinkr": {}}', "CF020 --default-sampling-params: no stage `thinkr` in this pipeline"),
        ('{"thinker": 3}', "CF012 --default-sampling-params: `thinker.default_sampling_params`"),
        ('{"0": {}, "thinker": {}}', "CF021 --default-sampling-params: stage `thinker` is given"),
    ],
)
def test_each_mistake_is_fatal_and_told_once(speech: Speech, text: str, told_is: str) -> None:
    """T66: invalid JSON too."""
    loaded = speech.load(fields=(flag(DEFAULTS, text),))
    (found,) = told(loaded)
    assert found.startswith(told_is)
    assert loaded.settings is None


def test_a_lonely_parameter_shows_how_to_write_it(speech: Speech) -> None:
    """With the stages that there are."""
    (found,) = speech.load(fields=(flag(DEFAULTS, '{"top_k": 3}'),)).diagnostics
    assert str(found.help).startswith('write `{"thinker": {"top_k": 3}}`; stages of `speech`: ')


@pytest.mark.parametrize("given", [3, "null", None])
def test_python_callers_may_give_nothing_but_a_mapping(speech: Speech, given: object) -> None:
    """`None` says nothing, as it stands for no stage."""
    loaded = speech.load(fields=python_fields({DEFAULTS: given}))
    codes = {3: ["CF012"], "null": ["CF004"], None: []}
    assert [found.code for found in loaded.diagnostics] == codes[given]


def test_parameters_of_an_unknown_model_are_checked_as_far_as_they_can_be(speech: Speech) -> None:
    """Stages are not looked up."""
    speech.configure({"model_type": "unknown"})
    loaded = speech.load(fields=(flag(DEFAULTS, '{"any": {"a": 1}, "b": 2}'),))
    assert [found.code for found in loaded.diagnostics] == ["MD008", "CF012"]


def test_the_same_parameter_elsewhere_in_the_layer_must_agree(speech: Speech) -> None:
    """`--stage-overrides`, `--set` and this flag all speak of single stages."""
    text = '{"thinker": {"temperature": 0.5}}'
    for setting, codes in (("0.5", []), ("0.7", ["CF067"])):
        loaded = speech.load(
            fields=(flag(DEFAULTS, text),),
            set_values=(f"thinker.default_sampling_params.temperature={setting}",),
        )
        assert [found.code for found in loaded.diagnostics] == codes


# --- the policy ----------------------------------------------------------------------------------


def test_the_policy_reaches_every_stage_with_replicas(speech: Speech) -> None:
    """Whoever made them; what is said of a stage wins."""
    loaded = speech.load(
        strategy="strategies: {thinker: [{axis: stage_replica, size: 2}, {axis: dp, size: 2}]}",
        deploy="stages: [{stage_id: 1, num_replicas: 2}]",
        set_values=("code2wav.stage_replica=2", "code2wav.stage_replica.routing=least_queue"),
        fields=(flag("omni_lb_policy", "random"),),
    )
    assert told(loaded) == []
    policies = {
        name: stage(loaded, name).axes["stage_replica"].routing
        for name in ("thinker", "talker", "code2wav")
    }
    assert {name: None if said is None else said.value for name, said in policies.items()} == {
        "thinker": Policy.RANDOM,
        "talker": Policy.RANDOM,
        "code2wav": Policy.LEAST_QUEUE,
    }
    assert stage(loaded, "thinker").axes["dp"].routing is None
    routing = stage(loaded, "thinker").axes["stage_replica"].routing
    assert routing is not None
    assert str(routing.origin) == "--omni-lb-policy"


def test_a_policy_without_replicas_has_no_effect_and_is_told(tmp_path: Path) -> None:
    """Ignored input is an error; beside a number that leaves one replica it is a warning."""
    made = made_from(tmp_path, "--omni-lb-policy round-robin")
    (found,) = made.diagnostics
    assert found.code == "CF069"
    assert found.message == "`--omni-lb-policy` has no effect: no stage has replicas"
    made = made_from(tmp_path, "--omni-lb-policy random --num-replicas 1")
    assert made.plan is not None
    assert codes_of(made) == ["AX012"]


def test_an_unknown_policy_is_led_to_the_nearest(tmp_path: Path) -> None:
    """Either spelling is read."""
    made = made_from(tmp_path, "--omni-lb-policy least-queu --num-replicas 2")
    (found,) = made.diagnostics
    assert (found.code, found.message) == ("CF013", "`omni_lb_policy` does not take `least-queu`")
    assert str(found.help).startswith("did you mean `least-queue-length`?")
    inputs = PlanInputs(model="", fields=python_fields({"omni_lb_policy": 3}))
    assert codes_of(python_made(tmp_path, inputs)) == ["CF013"]
    for name in ("round_robin", "round-robin"):
        made = made_from(tmp_path, f"--omni-lb-policy {name} --num-replicas 2")
        assert value_in(planned(made), "front.policy") == "round_robin"


def test_null_leaves_the_policy_of_the_strategy(speech: Speech) -> None:
    """It says nothing."""
    strategy = "strategies: {thinker: [{axis: stage_replica, size: 2, routing: random}]}"
    loaded = speech.load(strategy=strategy, fields=(flag("omni_lb_policy", "null"),))
    routing = stage(loaded, "thinker").axes["stage_replica"].routing
    assert routing is not None
    assert routing.value is Policy.RANDOM


def test_the_stages_of_an_unknown_model_may_have_replicas(speech: Speech) -> None:
    """Nobody can tell, so nothing is told but the model."""
    speech.configure({"model_type": "unknown"})
    loaded = speech.load(fields=(flag("omni_lb_policy", "random"),))
    assert [found.code for found in loaded.diagnostics] == ["MD008"]


def test_each_stage_whose_strategy_says_otherwise_is_a_conflict(speech: Speech) -> None:
    """P17: both places are named, and the others stay."""
    loaded = speech.load(
        strategy="strategies: {thinker: [{axis: stage_replica, size: 2, routing: random}],"
        " talker: [{axis: stage_replica, size: 2, routing: round_robin}]}",
        fields=(flag("omni_lb_policy", "round-robin"),),
    )
    (found,) = loaded.diagnostics
    assert found.code == "CF068"
    assert found.message == (
        "conflicting load-balancer policy for `thinker`: `round_robin` here, `random` in the"
        " strategy"
    )
    assert str(found.origin) == "--omni-lb-policy"
    assert str(found.notes[0].origin).startswith("strategy.yaml:1:")
