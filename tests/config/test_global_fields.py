"""Fields that are said for all stages: whom they reach, and what is told when they reach nobody."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from stagemesh.config.inputs import PlanInputs, python_fields
from stagemesh.config.load import load
from stagemesh.spec.axis import DeployField
from stagemesh.spec.origin import Layer
from stagemesh.spec.unset import UNSET
from tests.config.flagged import (
    CATALOG,
    codes_of,
    made_from,
    planned,
    python_made,
    text_of,
    value_in,
)
from tests.config.speech import Speech, flag, stage, told, value

MASTER = "--omni-master-address 127.0.0.1 --omni-master-port 26000"


@pytest.mark.parametrize(
    ("line", "model", "reached"),
    [
        ("--seed 3", "ar_dit", {"front": 3, "dit": UNSET}),
        ("--seed 3", "demo", {"front": 3, "mid": 3, "tail": 3}),
        ("--block-size 16", "demo", {"front": 16, "mid": 16, "tail": UNSET}),
        ("--boundary-ratio .5", "ar_dit", {"front": UNSET, "dit": 0.5}),
        ("--max-cpu-loras 4", "ar_dit", {"front": UNSET, "dit": 4}),
        ("--enable-lora --max-cpu-loras 4", "solo", {"front": 4}),
        ("--dtype float32", "ar_dit", {"front": "float32", "dit": "float32"}),
        ("--set mid.engine=fake --block-size 16", "demo", {"front": 16, "mid": UNSET}),
        ("--set mid.engine=null --block-size 16", "demo", {"front": 16, "mid": 16}),
        (f"--stage-id 1 {MASTER} --seed 3", "demo", {"front": UNSET, "mid": 3, "tail": UNSET}),
        (f"--stage-id mid {MASTER} --seed 3", "demo", {"front": UNSET, "mid": 3, "tail": UNSET}),
    ],
)
def test_a_field_reaches_every_stage_that_can_use_it(
    line: str, model: str, reached: dict[str, object], tmp_path: Path
) -> None:
    """By kind, by engine, by what is started here."""
    made = made_from(tmp_path, line, model=model)
    plan = planned(made)
    name = line.rpartition("--")[2].split()[0].replace("-", "_")
    assert {each: value_in(plan, f"{each}.{name}") for each in reached} == reached
    assert made.diagnostics == ()


@pytest.mark.parametrize(
    ("line", "model", "message", "help_text"),
    [
        (
            "--ring 2",
            "demo",
            "`--ring` cannot be used by any stage of `demo`",
            "`ring_degree` is a field of `diffusion` stages; stages are `front` (llm_ar),",
        ),
        (
            "--boundary-ratio 1",
            "demo",
            "`--boundary-ratio` cannot be used by any stage of `demo`",
            "`boundary_ratio` is a field of `diffusion` stages; ",
        ),
        (
            "--seed 1",
            "picture",
            "`--seed` cannot be used by any stage of `picture`",
            "`seed` is a field of `llm_ar`, `llm_generation` stages; ",
        ),
        (
            "--block-size 8",
            "picture",
            "`--block-size` cannot be used by any stage of `picture`",
            "`block_size` is an option of engine `ar`; ",
        ),
        (
            "--enable-lora",
            "picture",
            "`--enable-lora` cannot be used by any stage of `picture`",
            "`enable_lora` is a field of `llm_ar`, `llm_generation` stages; ",
        ),
        (
            f"--block-size 8 --stage-id 2 {MASTER}",
            "demo",
            "`--block-size` cannot be used by `tail`, which is started here",
            "`block_size` is an option of engine `ar`; ",
        ),
        (
            f"--seed 8 --stage-id none {MASTER}",
            "demo",
            "`--seed` cannot be used by anything that is started here",
            "`seed` is a field of ",
        ),
        (
            f"--max-cpu-loras 8 --stage-id 0 {MASTER}",
            "ar_dit",
            "`--max-cpu-loras` cannot be used by `front`, which is started here",
            "`max_cpu_loras` is a field of ",
        ),
    ],
)
def test_a_field_that_nobody_can_use_is_an_error_that_says_whose_it_is(
    line: str, model: str, message: str, help_text: str, tmp_path: Path
) -> None:
    """T50, P03: it is never dropped."""
    made = made_from(tmp_path, line, model=model)
    (found,) = made.diagnostics
    assert (found.code, found.message) == ("CF060", message)
    assert str(found.help).startswith(help_text)
    assert str(found.origin) == line.split(maxsplit=1)[0]
    assert made.plan is None


def test_a_wrong_value_is_told_once_for_all_stages(tmp_path: Path) -> None:
    """Under the name of the field, at the flag; also where nobody could use it."""
    made = made_from(tmp_path, "--max-num-seqs many --tensor-parallel-size 0")
    assert [str(found) for found in made.diagnostics] == [
        "error[CF012]: `max_num_seqs` must be a whole number, got text `many` (--max-num-seqs)",
        "error[CF013]: `tensor_parallel_size` must be `>= 1`, got `0` (--tensor-parallel-size)",
    ]
    made = made_from(tmp_path, "--cfg-parallel-size none")
    assert codes_of(made) == ["CF060", "CF012"]


@pytest.mark.parametrize("text", ["{", "3", "[1]", '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_invalid_json_is_fatal(text: str, tmp_path: Path) -> None:
    """T66: not a warning."""
    made = made_from(tmp_path, f"--compilation-config '{text}'")
    (found,) = made.diagnostics
    assert found.origin is not None
    assert (found.is_error, found.origin.source) == (True, "--compilation-config")
    assert made.plan is None


def test_null_takes_back_what_the_file_says(speech: Speech) -> None:
    """Whatever the form of the field."""
    deploy = (
        "stages: [{stage_id: 0, max_num_seqs: 8, env: {A: a}, num_replicas: 2,"
        " compilation_config: {level: 3}}]"
    )
    names = ("max_num_seqs", "num_replicas", "compilation_config")
    for fields in (
        tuple(flag(name, "null") for name in names),
        python_fields(dict.fromkeys(names)),
    ):
        loaded = speech.load(deploy=deploy, fields=fields)
        assert told(loaded) == []
        assert set(stage(loaded, "thinker").fields) == {"env"}
        assert stage(loaded, "thinker").axes == {}


def test_an_object_is_merged_by_key_and_replaces_no_more_than_it_says(speech: Speech) -> None:
    """As from any other layer; T63's sibling of files."""
    loaded = speech.load(
        deploy="stages: [{stage_id: 0, compilation_config: {level: 3, mode: a}}]",
        fields=(flag("compilation_config", '{"mode": "b"}'),),
    )
    assert value(loaded, "thinker", "compilation_config") == {"level": 3, "mode": "b"}
    assert value(loaded, "talker", "compilation_config") == {"mode": "b"}
    given = stage(loaded, "thinker").fields["compilation_config"].parts["mode"]
    assert (str(given.origin), given.origin.layer) == ("--compilation-config", Layer.GLOBAL)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--usp 2 --ulysses-degree 4", "CF061"),
        ("--async-chunk --no-async-chunk", "CF061"),
        ("--enable-multithread-weight-load --disable-multithread-weight-load", "CF061"),
    ],
)
def test_a_field_given_twice_must_have_one_value(line: str, code: str, tmp_path: Path) -> None:
    """Whatever it is called each time; none of them is lost."""
    made = made_from(tmp_path, line, model="ar_dit")
    (found,) = made.diagnostics
    first, second = (word for word in line.split() if word.startswith("-"))
    assert (found.code, str(found.origin)) == (code, second)
    assert str(found.notes[0].origin) == first


def test_a_field_given_twice_with_one_value_is_fine(tmp_path: Path) -> None:
    """The first spelling is its origin."""
    made = made_from(tmp_path, "--usp 2 --ulysses-degree 2", model="picture")
    assert made.diagnostics == ()
    assert planned(made).stages[0].values["axes.sp_ulysses.size"].origin == "--usp"


def test_what_two_fields_say_of_one_axis_must_agree_and_is_told_once(tmp_path: Path) -> None:
    """Once for all stages, not once for each; a third party's axis may have such fields."""
    mode = "ulysses_mode"
    axis = next(each for each in CATALOG.axes.values() if each.field_for("mode") == mode)
    twins = (*axis.deploy_fields, DeployField(name="other_mode", member="mode"))
    axes = {**CATALOG.axes, axis.name: dataclasses.replace(axis, deploy_fields=twins)}
    catalog = dataclasses.replace(CATALOG, axes=axes)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    for other, codes in (("strict", []), ("advanced_uaa", ["CF067"])):
        fields = python_fields({mode: "strict", "other_mode": other, "ulysses_degree": 2})
        deploy = {"pipeline": "two_dits"}
        inputs = PlanInputs(model=str(tmp_path), deploy_config=deploy, fields=fields)
        assert [found.code for found in load(inputs, catalog).diagnostics] == codes


# --- adapters ------------------------------------------------------------------------------------


def test_adapters_of_several_stages_have_to_name_them(tmp_path: Path) -> None:
    """S2: all of them in one finding, with the whole rewrite."""
    line = "--enable-lora --max-lora-rank 64 --lora-target-modules q,v"
    made = made_from(tmp_path, line)
    (found,) = made.diagnostics
    assert found.code == "CF062"
    assert found.message == "`--enable-lora` must say which of `3` stages it means"
    assert [str(note.origin) for note in found.notes] == [
        "--max-lora-rank",
        "--lora-target-modules",
    ]
    rewritten = (
        """--stage-overrides '{"front": {"enable_lora": true, "max_lora_rank": 64,"""
        """ "lora_target_modules": ["q", "v"]}}'"""
    )
    assert found.help == f"write `{rewritten}`; stages that take it: `front`, `mid`, `tail`"
    plan = planned(made_from(tmp_path, rewritten))
    assert value_in(plan, "front.max_lora_rank") == 64
    assert value_in(plan, "mid.enable_lora") is UNSET


def test_the_whole_rewrite_is_what_a_shell_takes(tmp_path: Path) -> None:
    """Also where a value holds what ends a quotation."""
    (found,) = made_from(tmp_path, """--enable-lora --lora-target-modules "it's" """).diagnostics
    _, rewritten, *_ = str(found.help).split("`")
    plan = planned(made_from(tmp_path, f"{rewritten} --set front.max_lora_rank=8"))
    assert value_in(plan, "front.lora_target_modules") == ("it's",)


def test_the_adapters_of_one_process_have_to_name_their_stage_too(tmp_path: Path) -> None:
    """Each start of the stage-based form resolves the whole pipeline."""
    made = made_from(tmp_path, f"--max-loras 2 --stage-id 1 {MASTER}")
    assert codes_of(made) == ["CF062"]


def test_adapters_of_an_only_stage_need_no_name(tmp_path: Path) -> None:
    """There is one stage that can be meant."""
    plan = planned(made_from(tmp_path, "--enable-lora --max-loras 2", model="solo"))
    assert value_in(plan, "front.enable_lora") is True


def test_adapters_kept_by_the_host_belong_to_the_denoiser_where_there_is_one(
    tmp_path: Path,
) -> None:
    """S2: elsewhere they have to name their stage like the others."""
    assert codes_of(made_from(tmp_path, "--max-cpu-loras 4")) == ["CF062"]
    plan = planned(made_from(tmp_path, "--max-cpu-loras 4", model="ar_dit"))
    assert value_in(plan, "dit.max_cpu_loras") == 4


# --- Python --------------------------------------------------------------------------------------


def test_python_callers_give_the_same_fields(tmp_path: Path) -> None:
    """The origin is the argument."""
    fields = python_fields(
        {
            "tensor_parallel_size": 2,
            "async_chunk": False,
            "default_sampling_params": {"front": {"temperature": 0.5}},
            "compilation_config": '{"level": 3}',
            "seed": UNSET,
        }
    )
    made = python_made(tmp_path, PlanInputs(model="", fields=fields))
    plan = planned(made)
    assert plan.async_chunk is False
    assert value_in(plan, "mid.tp") == 2
    assert value_in(plan, "front.sampling.temperature") == 0.5
    assert value_in(plan, "front.compilation_config.level") == 3
    assert value_in(plan, "front.seed") is UNSET
    assert plan.values["async_chunk"].origin == "Omni(async_chunk=...)"
    assert plan.stages[0].values["axes.tp.size"].origin == "Omni(tensor_parallel_size=...)"


@pytest.mark.parametrize(
    ("name", "message", "help_text"),
    [
        ("max_num_seq", "unknown field `max_num_seq`", "did you mean `max_num_seqs`?"),
        ("host", "unknown field `host`", "none of the"),
        (
            "stage_0_devices",
            "`stage_0_devices` is said of one stage, not of all",
            'write `stage_overrides={"0": {"devices": ...}}`',
        ),
        (
            "env",
            "`env` is said of one stage, not of all",
            'write `stage_overrides={"0": {"env": ...}}`',
        ),
        ("stages", "unknown field `stages`", "did you mean `stage_id`?"),
        (
            "strategi_config",
            "unknown field `strategi_config`",
            "did you mean `strategy_config`?",
        ),
        ("pipeline", "unknown field `pipeline`", "none of the"),
    ],
)
def test_an_unknown_argument_is_an_error_that_says_what_was_meant(
    name: str, message: str, help_text: str, tmp_path: Path
) -> None:
    """T49, P15: neither keys of a server, nor fields of one stage, nor typing mistakes are lost."""
    made = python_made(tmp_path, PlanInputs(model="", fields=python_fields({name: 3})))
    (found,) = made.diagnostics
    assert (found.code, found.message) == ("CF065", message)
    assert str(found.help).startswith(help_text)
    assert str(found.origin) == f"Omni({name}=...)"


def test_a_parallel_configuration_of_another_type_is_told(tmp_path: Path) -> None:
    """It is no field, so its type is named."""
    fields = python_fields({"parallel_config": {"ring_degree": 2}})
    (found,) = python_made(tmp_path, PlanInputs(model="", fields=fields)).diagnostics
    assert found.code == "CF012"
    assert "`DiffusionParallelConfig`" in found.message
    assert str(found.origin) == "Omni(parallel_config=...)"


def test_an_argument_that_is_no_configuration_at_all_is_told(tmp_path: Path) -> None:
    """A value of a type that no file could hold."""
    fields = python_fields({"seed": object(), "hf_overrides": {"a": float("nan")}})
    made = python_made(tmp_path, PlanInputs(model="", fields=fields))
    assert codes_of(made) == ["CF005", "CF005"]
    assert "Omni(seed=...)" in text_of(made)
