"""Deploy files: what is read, and each way to get one wrong."""

from __future__ import annotations

import dataclasses

import pytest

from stagemesh.config.fields import stage_fields
from stagemesh.spec.axis import Axis, DeployField, Owner, WorldRole
from stagemesh.spec.patterns import Broadcast, TakeRank
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.registry import PluginError
from stagemesh.spec.unset import UNSET
from tests.config.speech import (
    CATALOG,
    ENGINE,
    ConnectorOptions,
    Speech,
    Tuning,
    size,
    stage,
    told,
    value,
)

GOOD = """\
async_chunk: false
connectors:
  shm: {name: PipeConnector, extra: {slots: 4}}
  plain: {name: Pipe}
stages:
  - stage_id: 0
    engine: steps
    devices: "0, 1"
    num_replicas: 2
    env: {OMP_NUM_THREADS: "1", EMPTY: ""}
    default_sampling_params: {temperature: 0.5, stop: [a, b]}
    additional_config: {depth: {a: 1}}
    output_connectors: {to_stage_1: shm}
    max_num_seqs: 8
    share: 1
    tuning: {level: 2}
  - stage_id: 1
    tensor_parallel_size: 2
    enable_expert_parallel: true
    input_connectors: {from_stage_0: shm}
"""


def test_everything_a_file_says_is_in_the_settings_with_its_type(speech: Speech) -> None:
    """Fields are typed, lists are tuples, nested options are instances."""
    loaded = speech.load(deploy=GOOD)
    assert told(loaded) == []
    assert loaded.settings is not None
    fields = {name: given.value for name, given in stage(loaded, "thinker").fields.items()}
    assert fields == {
        "engine": "steps",
        "devices": "0, 1",
        "env": {"OMP_NUM_THREADS": "1", "EMPTY": ""},
        "default_sampling_params": {"temperature": 0.5, "stop": ("a", "b")},
        "additional_config": {"depth": {"a": 1}},
        "output_connectors": {"to_stage_1": "shm"},
        "max_num_seqs": 8,
        "share": 1.0,
        "tuning": Tuning(level=2),
    }
    assert isinstance(fields["share"], float)
    assert loaded.settings.fields["async_chunk"].value is False
    connectors = loaded.settings.connectors
    assert connectors["shm"].options == ConnectorOptions(slots=4)
    assert (connectors["plain"].connector, connectors["plain"].name) == ("pipe", "plain")
    assert str(connectors["shm"].origin) == "deploy.yaml:3:8"


def test_the_field_of_an_axis_is_the_axis(speech: Speech) -> None:
    """One representation: a deploy field and a strategy entry say the same thing."""
    loaded = speech.load(deploy=GOOD)
    assert size(loaded, "thinker", "stage_replica") == 2
    assert size(loaded, "talker", "tp") == 2
    assert size(loaded, "talker", "ep") is None
    assert str(stage(loaded, "talker").axes["ep"].origin) == "deploy.yaml:19:29"


def test_a_flag_that_is_off_and_a_size_that_is_null_declare_nothing(speech: Speech) -> None:
    """`false` and `null` are as if nothing had been said, when nothing else does."""
    deploy = "stages: [{stage_id: 0, enable_expert_parallel: false, tensor_parallel_size: null}]"
    assert stage(speech.load(deploy=deploy), "thinker").axes == {}


def test_members_of_mappings_know_their_own_place(speech: Speech) -> None:
    """Later checks can point to the member at fault."""
    given = stage(speech.load(deploy=GOOD), "thinker").fields["default_sampling_params"]
    assert str(given.parts["temperature"].origin) == "deploy.yaml:11:44"
    assert str(given.origin) == "deploy.yaml:11:30"


def test_the_models_own_file_is_read_when_none_is_given(speech: Speech) -> None:
    """Its values are of the same layer, under its short name; a given file replaces it."""
    loaded = speech.load(deploy=UNSET)
    assert value(loaded, "thinker", "max_num_seqs") == 8
    assert str(stage(loaded, "thinker").fields["max_num_seqs"].origin) == "speech.yaml:4:19"
    assert value(speech.load(deploy="{}"), "thinker", "max_num_seqs") is UNSET


def test_null_where_a_whole_part_could_stand_says_nothing(speech: Speech) -> None:
    """Every key may be null."""
    loaded = speech.load(deploy="{async_chunk: ~, pipeline: ~, connectors: ~, stages: ~}")
    assert told(loaded) == []
    assert loaded.settings is not None
    assert dict(loaded.settings.fields) == {}
    deploy = "connectors: {a: ~}\nstages: [{stage_id: 0, env: ~, devices: ~}]"
    loaded = speech.load(deploy=deploy)
    assert (told(loaded), stage(loaded, "thinker").fields) == ([], {})


def entry(text: str) -> str:
    """Put fields into the entry of the thinker."""
    return f"stages:\n  - stage_id: 0\n    {text}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "CF004 deploy.yaml: expected a mapping, got nothing"),
        ("async_chunk: 'no'", "CF012 deploy.yaml:1:14: `async_chunk` must be `true` or `false`,"),
        ("pipeline: 3", "CF012 deploy.yaml:1:11: `pipeline` must be text, got `3`"),
        ("gpu_memory: 3", "CF010 deploy.yaml:1:1: unknown key `gpu_memory` in `deploy.yaml`"),
        ("1: 3", "CF010 deploy.yaml:1:1: unknown key `1` in `deploy.yaml`"),
        ("stage_args: []", "CF023 deploy.yaml:1:1: `stage_args` is not read"),
        ("stages: {}", "CF012 deploy.yaml:1:9: `stages` must be a list of stages, got a mapping"),
        ("stages: [1]", "CF012 deploy.yaml:1:10: `stages[0]` must be a mapping with `stage_id`"),
        ("stages: [{}]", "CF011 deploy.yaml:1:10: `stages[0].stage_id` is missing"),
        (
            "stages: [{stage_idd: 0}]",
            "CF010 deploy.yaml:1:11: unknown key `stage_idd` in `stages[0]",
        ),
        ("stages: [{max_num_seqs: 1}]", "CF011 deploy.yaml:1:10: `stages[0].stage_id` is missing"),
        ("stages: [{stage_id: '0'}]", "CF012 deploy.yaml:1:21: `stages[0].stage_id` must be a"),
        ("stages: [{stage_id: true}]", "CF012 deploy.yaml:1:21: `stages[0].stage_id` must be a"),
        ("stages: [{stage_id: 3}]", "CF020 deploy.yaml:1:21: no stage `3` in this pipeline"),
        ("stages: [{stage_id: -1}]", "CF020 deploy.yaml:1:21: no stage `-1` in this pipeline"),
        (
            "stages: [{stage_id: 0}, {stage_id: 0}]",
            "CF021 deploy.yaml:1:36: stage `0` is given twice",
        ),
        (entry("max_num_sqs: 3"), "CF010 deploy.yaml:3:5: unknown key `max_num_sqs` in `thinker`"),
        (entry("max_num_seqs: 0"), "CF013 deploy.yaml:3:19: `thinker.max_num_seqs` must be `>= 1`"),
        (entry("max_num_seqs: 1.0"), "CF012 deploy.yaml:3:19: `thinker.max_num_seqs` must be a"),
        (
            entry("share: 1.5"),
            "CF013 deploy.yaml:3:12: `thinker.share` must be `0 to 1`, got `1.5`",
        ),
        (entry("devices: 0"), "CF012 deploy.yaml:3:14: `thinker.devices` must be text, got `0`"),
        (entry("devices: [0, 1]"), "CF012 deploy.yaml:3:14: `thinker.devices` must be text, got a"),
        (
            entry("devices: a,b"),
            "CF013 deploy.yaml:3:14: `thinker.devices` must be like `0,1`, got",
        ),
        (
            entry("devices: '-1'"),
            "CF013 deploy.yaml:3:14: `thinker.devices` must be like `0,1`, got",
        ),
        (
            entry("devices: '0,'"),
            "CF013 deploy.yaml:3:14: `thinker.devices` must be like `0,1`, got",
        ),
        (
            entry("devices: ''"),
            "CF013 deploy.yaml:3:14: `thinker.devices` must be like `0,1`, got ``",
        ),
        (entry("env: {A: 1}"), "CF012 deploy.yaml:3:14: `thinker.env.A` must be text, got `1`"),
        (
            entry("env: {A-B: a}"),
            "CF013 deploy.yaml:3:11: `thinker.env.A-B` must be like `NAME`, got",
        ),
        (entry("env: []"), "CF012 deploy.yaml:3:10: `thinker.env` must be a mapping, got a list"),
        (
            entry("output_connectors: {stage_1: shm}"),
            "CF013 deploy.yaml:3:25: `thinker.output_connectors.stage_1` must be like `to_stage_1`",
        ),
        (
            entry("tensor_parallel_size: '2'"),
            "CF012 deploy.yaml:3:27: `thinker.tensor_parallel_size` must be a whole number,",
        ),
        (
            entry("enable_expert_parallel: 1"),
            "CF012 deploy.yaml:3:29: `thinker.enable_expert_parallel` must be `true` or `false`",
        ),
        (entry("tuning: {levl: 1}"), "CF010 deploy.yaml:3:14: unknown key `levl` in `thinker.tuni"),
        (entry("tuning: {}"), "CF011 deploy.yaml:3:13: `thinker.tuning.level` is missing"),
        (entry("runtime: {devices: '0'}"), "CF023 deploy.yaml:3:5: `runtime` is not nested here"),
        (entry("engine_args: ~"), "CF023 deploy.yaml:3:5: `engine_args` is not nested here"),
        ("connectors: []", "CF012 deploy.yaml:1:13: `connectors` must be a mapping from names to"),
        ("connectors: {a: b}", "CF012 deploy.yaml:1:17: `connectors.a` must be a mapping, got"),
        ("connectors: {a: {name: 3}}", "CF012 deploy.yaml:1:24: `connectors.a.name` must be text"),
        ("connectors: {a: {}}", "CF011 deploy.yaml:1:17: `connectors.a.name` is missing"),
        (
            "connectors: {a: {name: Shm}}",
            "CF040 deploy.yaml:1:24: unknown connector `Shm`",
        ),
        (
            "connectors: {a: {name: Pipe, extra: {slot: 1}}}",
            "CF010 deploy.yaml:1:44: unknown key `slot` in `connectors.a.extra`",
        ),
        (
            "connectors: {a: {name: Pipe, extra: {slots: 0}}}",
            "CF013 deploy.yaml:1:45: `connectors.a.extra.slots` must be `>= 1`, got `0`",
        ),
        (
            "connectors: {a: {nam: Pipe}}",
            "CF010 deploy.yaml:1:18: unknown key `nam` in `connectors.a`",
        ),
    ],
)
def test_each_mistake_is_told_once_with_its_place(speech: Speech, text: str, expected: str) -> None:
    """T33, T34, T51 and every wrong type: one diagnostic each."""
    loaded = speech.load(deploy=text)
    (found,) = told(loaded)
    assert found.startswith(expected)
    assert loaded.settings is None
    assert len(loaded.diagnostics[0].message) <= 100


@pytest.mark.parametrize("text", ["max_num_seqs: !x 3", "env: {A: !x b}", "extra: {a: [.nan]}"])
def test_a_value_that_no_file_can_hold_is_told_once(speech: Speech, text: str) -> None:
    """What the source refuses is not checked again."""
    assert [found.code for found in speech.load(deploy=entry(text)).diagnostics] == ["CF005"]


def test_help_shows_the_rewrite(speech: Speech) -> None:
    """What was written another way is shown as it should be."""
    texts = {
        entry("devices: 0"): 'write `"0"`',
        entry("devices: [0, 1]"): 'write `"0,1"`',
        entry("devices: [a]"): "None",
        entry("env: {A: 1}"): 'write `"1"`',
        entry("env: {A: true}"): 'write `"true"`',
        entry("env: {A: [x]}"): "None",
        entry("engine_args: {tensor_parallel_size: 2, env: {A: b}}"): (
            "write stage fields directly in the entry of the stage:"
            " `tensor_parallel_size: 2`, `env: ...`"
        ),
        "stage_args: []": 'write `stages:` with a list of `{stage_id: 0, devices: "0", ...}`',
        "connectors: {a: {name: PipeConector}}": "did you mean `PipeConnector`?",
        "stages: [{stage_id: 7}]": "`thinker` (0), `talker` (1), `code2wav` (2)",
    }
    for text, help_text in texts.items():
        (found,) = speech.load(deploy=text).diagnostics
        assert help_text in str(found.help)


def test_a_new_axis_brings_its_field_without_another_edit(speech: Speech) -> None:
    """The loader takes what the declaration says."""
    axis = Axis(
        name="wide",
        summary="an axis",
        fits=frozenset(ExecutionType),
        role=WorldRole.MULTIPLIES_RANKS,
        routing=Broadcast(),
        aggregation=TakeRank(),
        owner=Owner.ENGINE,
        deploy_fields=(DeployField(name="wide_size"),),
        options=Tuning,
    )
    catalog = dataclasses.replace(CATALOG, axes={**CATALOG.axes, "wide": axis})
    loaded = speech.load(deploy=entry("wide_size: 3"), catalog=catalog)
    assert size(loaded, "thinker", "wide") == 3
    strategy = "strategies: {thinker: [{axis: wide, size: 2}]}"
    assert told(speech.load(strategy=strategy, catalog=catalog)) == [
        "CF011 strategy.yaml:1:24: `thinker.wide.level` is missing"
    ]


def test_two_engines_may_disagree_about_a_field(speech: Speech) -> None:
    """At reading, a value passes that one of them takes; the planner knows which one runs."""
    other = dataclasses.make_dataclass("Other", [("share", str, "all")], frozen=True)
    second = dataclasses.replace(ENGINE, name="other", options=other)
    catalog = dataclasses.replace(CATALOG, engines={"steps": ENGINE, "other": second})
    assert value(speech.load(deploy=entry("share: most"), catalog=catalog), "thinker", "share") == (
        "most"
    )
    assert value(speech.load(deploy=entry("share: 1"), catalog=catalog), "thinker", "share") == 1.0
    (found,) = told(speech.load(deploy=entry("share: []"), catalog=catalog))
    assert "`thinker.share` must be a number, got a list" in found


def test_one_name_for_two_things_is_a_fault_of_the_plug_in() -> None:
    """Neither an axis nor an engine may take a field that exists."""
    axis = dataclasses.replace(
        CATALOG.axes["tp"], name="tp2", deploy_fields=(DeployField(name="devices"),)
    )
    with pytest.raises(PluginError, match="axis `tp2` declares the stage field `devices`"):
        stage_fields(dataclasses.replace(CATALOG, axes={"tp2": axis}))
    options = dataclasses.make_dataclass("Clashing", [("stage_id", int, 0)], frozen=True)
    engine = dataclasses.replace(ENGINE, options=options)
    with pytest.raises(PluginError, match="engine `steps` declares the stage field `stage_id`"):
        stage_fields(dataclasses.replace(CATALOG, engines={"steps": engine}))
