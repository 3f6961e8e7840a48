"""No option is lost because another one, with which it acts, is not there or is off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.docs import field_docs
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.plan.build import build
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.switch import Switch, acts_with, needs_of
from tests.config.flagged import codes_of, made_from, planned, text_of
from tests.plan.making import TOY, Said, catalog, request, solo
from tests.plan.rules.toys import DENOISER, MIXED, ONE, TWO, Toy, listed

LORA: Final = {"enable_lora": True}
NUMA: Final = {"numa_bind": True}
DLO: Final = {"enable_distributed_layerwise_offload": True}
NEVER: Final = {"restart": "never"}
EAGER: Final = {"enforce_eager": True}
UNTOKENIZED: Final = {"skip_tokenizer_init": True}
SKIPS: Final = {"diffusion_kv_cache_skip_layers": [1]}
FP8: Final = {"diffusion_kv_cache_dtype": "fp8"}
CASES: Final[
    Mapping[str, tuple[object, list[Mapping[str, object]], list[Mapping[str, object]]]]
] = {
    "max_cpu_loras": (2, [LORA], [{}, {"enable_lora": False}]),
    "max_lora_rank": (64, [LORA], [{}, {"enable_lora": False}]),
    "max_loras": (2, [LORA], [{}, {"enable_lora": None}]),
    "lora_target_modules": (["q_proj"], [LORA], [{}]),
    "fully_sharded_loras": (True, [LORA], [{}]),
    "numa_bind_nodes": ([0], [NUMA], [{}, {"numa_bind": False}]),
    "numa_bind_cpus": (["0"], [NUMA], [{}, {"numa_bind": False}]),
    "max_restarts": (50, [{}, {"restart": "on_failure"}], [NEVER]),
    "restart_window": (60, [{}], [NEVER]),
    "restart_delay": (0, [{}], [NEVER]),
    "tokenizer": ("/t", [{}, {"skip_tokenizer_init": False}], [UNTOKENIZED]),
    "tokenizer_mode": ("slow", [{}], [UNTOKENIZED]),
    "custom_pipeline_args": (
        {"path": "/p"},
        [{"diffusion_load_format": "custom_pipeline"}, {"model_class_name": "My"}],
        [{}, {"diffusion_load_format": "dummy"}],
    ),
    "force_cutlass_fp8": (
        True,
        [{"quantization": "fp8"}, {"diffusion_quantization_config": {"method": "fp8"}}],
        [{}, {"quantization": "none"}],
    ),
    "fastvideo_vsa_topk": (
        64,
        [{"diffusion_attention_config": {"per_role": {"self": "FASTVIDEO_VSA"}}}],
        [{}, {"diffusion_attention_config": {"default": "TORCH_SDPA"}}],
    ),
    "diffusion_compile_granularity": ("full", [{}, {"enforce_eager": False}], [EAGER]),
    "diffusion_compile_dynamic": (False, [{}], [EAGER]),
    "lora_backend": ("distill", [{"lora_path": "/a"}], [{}, {"lora_path": None}]),
    "lora_scale": (
        0.5,
        [{"lora_path": "/a"}, {"lora_path": "/a", "lora_backend": "peft"}],
        [{}, {"lora_path": "/a", "lora_backend": "distill"}],
    ),
    "cache_config": ({"a": 1}, [{"cache_backend": "tea_cache"}], [{}, {"cache_backend": "none"}]),
    "enable_cache_dit_summary": (
        True,
        [{"cache_backend": "cache_dit"}],
        [{}, {"cache_backend": "tea_cache"}],
    ),
    "diffusion_kv_cache_skip_steps": ([1], [FP8], [{}, {"diffusion_kv_cache_dtype": "auto"}]),
    "diffusion_kv_cache_skip_layers": ([1], [FP8], [{}]),
    "num_weight_load_threads": (
        4,
        [{}, {"enable_multithread_weight_load": True}],
        [{"enable_multithread_weight_load": False}],
    ),
    "dlo_use_allgather": (False, [DLO, {"diffusion_offload_config": {"a": 1}}], [{}]),
    "dlo_resident_layers": (2, [DLO], [{}, {"enable_distributed_layerwise_offload": False}]),
    "dlo_host_registration_limit_gib": (8, [DLO], [{}]),
    "host_weight_runtime_root": (
        "/w",
        [{"host_weight_runtime_mode": "required"}],
        [{}, {"host_weight_runtime_mode": "disabled"}],
    ),
}
"""A value of every option that needs others, what lets it act, and what does not."""
NEEDING: Final = {
    name: kinds for declared, kinds in KIND_FIELDS.items() for name in needs_of(declared)
}


def of(toy: Toy, name: str) -> Toy:
    """The pipeline whose only stage has an option, and what it needs."""
    is_by_tokens = ExecutionType.LLM_AR in NEEDING[name]
    return replace(toy, model=ONE if is_by_tokens else DENOISER)


def test_the_table_has_every_option_that_needs_another() -> None:
    """So that a new one is thought of; each says in its text what it needs."""
    assert set(NEEDING) == set(CASES)
    for declared in KIND_FIELDS:
        docs = field_docs(declared)
        for name, needs in needs_of(declared).items():
            assert docs[name].endswith(f"; {needs}.")


@pytest.mark.parametrize("name", CASES)
def test_an_option_acts_or_is_told(toy: Toy, name: str) -> None:
    """An error where nothing was said of the other, a warning where it says no."""
    toy = of(toy, name)
    value, acting, idle = CASES[name]
    for others in acting:
        plan = toy.plan(listed({name: value, **others}))
        assert toy.found(listed({name: value, **others})) == [], others
        toy.keeps(plan)
    for others in idle:
        deploy = listed({name: value, **others})
        [found] = toy.build(deploy).diagnostics
        assert found.code == "PL150"
        says_no = [each for each in others.values() if each is not None]
        assert found.is_error is not bool(says_no), others
        assert f"`{name}`" in found.message
        assert str(found.origin).startswith(f"{toy.folder}/deploy.json:1:")
        assert f"or leave `{name}` out" in str(found.help)
        if not found.is_error:
            toy.keeps(toy.plan(deploy))


@pytest.mark.parametrize("field", ["quantization", "cache_backend", "model_class_name"])
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_name_switches_nothing_on(toy: Toy, field: str, text: str) -> None:
    """It is refused, since nobody can tell whether it means on or off."""
    found = replace(toy, model=DENOISER).one(listed({field: text}))
    assert (found.code, found.message) == ("CF013", f"`s0.{field}` must not be empty")
    assert found.help == "leave it out, or write `null` to take back what lower layers say"


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("--quantization ''", ["CF013"]),
        ("--quantization '' --force-cutlass-fp8", ["CF013"]),
        ("--set base.quantization='\"\"'", ["CF013"]),
        ("--set base.lora_path='\"\"' --set base.lora_scale=0.5", ["CF013"]),
        ("--set base.lora_path='[/a, \" \"]'", ["CF013"]),
        ("--set base.lora_path=[] --set base.lora_scale=0.5", ["PL094"]),
    ],
)
def test_every_door_refuses_an_empty_name(line: str, codes: list[str], tmp_path: Path) -> None:
    """Once; that a list has none a rule of adapters says."""
    assert codes_of(made_from(tmp_path, line, model="two_dits")) == codes


@pytest.mark.parametrize("name", CASES)
def test_what_is_cleared_asks_for_nothing(toy: Toy, name: str) -> None:
    """`null` takes an option back."""
    assert of(toy, name).found(listed({name: None})) == []


def test_options_that_need_the_same_are_told_together(toy: Toy) -> None:
    """One cause, one finding; the help names what serves all of them."""
    toy = replace(toy, model=DENOISER)
    found = toy.one(listed({"cache_config": {"a": 1}, "enable_cache_dit_summary": True}))
    assert found.message == "`cache_config` of `s0` needs `cache_backend`"
    assert [note.message for note in found.notes] == [
        "`enable_cache_dit_summary` needs `cache_backend: cache_dit`"
    ]
    assert found.help == (
        "nothing acts on it otherwise: give `cache_backend: cache_dit`, or leave `cache_config`"
        " and `enable_cache_dit_summary` out"
    )
    found = toy.one(listed({"enable_cache_dit_summary": True, "cache_config": {"a": 1}}))
    assert found.message == "`cache_config` of `s0` needs `cache_backend`"
    found = toy.one(listed({"diffusion_kv_cache_skip_steps": [1], **SKIPS}))
    assert [note.message for note in found.notes] == ["so does `diffusion_kv_cache_skip_layers`"]


@pytest.mark.parametrize(
    ("attention", "codes"),
    [
        ({"defualt": "FASTVIDEO_VSA"}, ["PL089"]),
        ({"default": 3}, ["PL089"]),
        ({"default": "TORCH_SDPA"}, ["PL150"]),
        ({"default": "TORCH_SPDA"}, ["PL096", "PL150"]),
    ],
)
def test_a_switch_with_an_error_inside_is_no_second_finding(
    toy: Toy, attention: Mapping[str, object], codes: list[str]
) -> None:
    """What it will say is not known; that it says no is told where it is well."""
    given = {"diffusion_attention_config": attention, "fastvideo_vsa_topk": 64}
    found = replace(toy, model=DENOISER).build(listed(given)).diagnostics
    assert [each.code for each in found] == codes


def test_a_flag_with_an_error_inside_is_no_second_finding(tmp_path: Path) -> None:
    """Its members have no places of their own."""
    line = '-dac \'{"defualt": "TORCH_SDPA"}\' --fastvideo-vsa-topk 64'
    assert codes_of(made_from(tmp_path, line, model="two_dits")) == ["PL089"]


def test_one_of_several_is_named_and_the_help_has_the_others(toy: Toy) -> None:
    """Any of them would do."""
    found = replace(toy, model=DENOISER).one(listed({"custom_pipeline_args": {"a": 1}}))
    needed = "diffusion_load_format: custom_pipeline"
    assert found.message == f"`custom_pipeline_args` of `s0` needs `{needed}`"
    assert f"give `{needed}` or `model_class_name`, or leave" in str(found.help)
    named = {"custom_pipeline_args": {"pipeline_class": "m.P"}}
    assert replace(toy, model=DENOISER).found(listed(named)) == []


def test_an_option_that_is_switched_off_names_the_place_that_does_it(toy: Toy) -> None:
    """With the others that it switches off."""
    found = toy.one(listed({"restart": "never", "max_restarts": 5, "restart_delay": 0}))
    assert not found.is_error
    assert found.message == "`restart` of `s0` switches `max_restarts` off"
    assert [note.message for note in found.notes] == [
        "`restart` is `never` here",
        "so is `restart_delay`",
    ]
    assert found.help == (
        "give `restart` another value, or leave `max_restarts` and `restart_delay` out"
    )
    found = toy.one(listed({"enable_lora": False, "max_loras": 5}))
    assert found.help == "write `enable_lora: true`, or leave `max_loras` out"


@pytest.mark.parametrize(
    ("below", "above", "codes"),
    [
        ({"restart": "on_failure", "max_restarts": 5}, {"restart": "never"}, []),
        ({"restart": "never"}, {"max_restarts": 5}, ["PL150"]),
        ({"enable_lora": True, "max_loras": 5}, {"enable_lora": False}, []),
        ({"enable_lora": True, "max_loras": 5}, {"enable_lora": None}, ["PL150"]),
        ({"max_loras": 5}, {"max_loras": None}, []),
    ],
)
def test_whoever_switches_off_in_a_higher_layer_means_the_options_too(
    toy: Toy,
    below: Mapping[str, object],
    above: Mapping[str, object],
    codes: list[str],
) -> None:
    """`null` says nothing, so the option is left alone; a plan of the rest can be saved."""
    result = toy.build(listed(below), listed(above))
    assert [found.code for found in result.diagnostics] == codes
    if result.plan is not None:
        toy.keeps(result.plan)


@pytest.mark.parametrize(
    "line",
    [
        "--set dit.cache_backend=tea_cache --enable-cache-dit-summary",
        "--set dit.lora_path=/a --set dit.lora_backend=distill --lora-scale 2",
        "--set dit.enforce_eager=true --diffusion-compile-granularity full",
        "--set dit.restart=never --max-restarts 5",
        "--restart never --max-restarts 5",
        "--restart never --set dit.max_restarts=5",
    ],
)
def test_what_is_typed_in_one_command_is_not_taken_back_by_it(line: str, tmp_path: Path) -> None:
    """A flag of all stages is lost to `--set` no more silently than to another flag."""
    made = made_from(tmp_path, line, model="picture")
    assert codes_of(made) == ["PL150"], text_of(made)
    assert planned(made).stages


def test_what_the_root_says_counts_where_one_stage_acts_on_it(toy: Toy) -> None:
    """Another stage may switch it off; all of them may not."""
    toy = replace(toy, model=TWO)
    root = {"max_restarts": 5}
    assert toy.found({**root, **listed({}, NEVER)}) == []
    found = toy.one({**root, **listed(NEVER, NEVER)})
    assert found.message == "`restart` of `s0` switches `max_restarts` off"
    assert [note.message for note in found.notes] == [
        "`restart` is `never` here",
        "`restart` of `s1` switches `max_restarts` off",
    ]


def test_a_field_that_the_kind_of_stage_lacks_switches_nothing(toy: Toy) -> None:
    """`max_cpu_loras` of a diffusion stage needs no `enable_lora`."""
    toy = replace(toy, model=MIXED)
    assert toy.found(listed({}, {"max_cpu_loras": 1})) == []


@pytest.mark.parametrize(
    ("line", "reached", "codes"),
    [
        ("--set base.cache_backend=tea_cache", ["base"], []),
        ("--cache-backend tea_cache", ["base", "refiner"], []),
        ("--cache-backend tea_cache --set base.cache_backend=none", ["refiner"], []),
        ("--set base.engine=diffusion --set base.cache_backend=tea_cache", ["base"], []),
        ("--cache-backend none", ["base", "refiner"], ["PL150"]),
        ("", None, ["PL150"]),
    ],
)
def test_a_flag_for_all_stages_reaches_those_that_act_on_it(
    line: str, reached: list[str] | None, codes: list[str], tmp_path: Path
) -> None:
    """If there are any; else it is told, once."""
    made = made_from(tmp_path, f"--cache-config '{{\"a\": 1}}' {line}", model="two_dits")
    assert codes_of(made) == codes, text_of(made)
    if reached is None:
        assert made.plan is None
        return
    stages = planned(made).stages
    assert [stage.name for stage in stages if "cache_config" in stage.stage_args] == reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Options of an engine that takes adapters, and one that needs another of its own."""

    enable_lora: bool = False
    """Whether it does."""
    max_lora_rank: int = 16
    """The greatest rank."""
    turbo: bool = True
    """Whether it is fast."""
    turbo_level: int = field(default=1, metadata=acts_with(Switch(name="turbo", on=(True,))))
    """How fast."""


@pytest.mark.parametrize(
    ("said", "messages"),
    [
        ({"max_lora_rank": 16}, []),
        ({"max_lora_rank": 32}, ["`max_lora_rank` of `thinker` needs `enable_lora: true`"]),
        ({"turbo_level": 2}, []),
        ({"turbo_level": 2, "turbo": False}, ["`turbo` of `thinker` switches `turbo_level` off"]),
        ({"turbo_level": 1, "turbo": False}, []),
    ],
)
def test_options_of_an_engine_need_others_too(
    said: Mapping[str, object], messages: list[str]
) -> None:
    """Its defaults hold, and saying one again asks for nothing."""
    engine = replace(TOY, options=Own)
    given = request(solo(), {"thinker": Said(fields=dict(said))})
    known = replace(catalog(), engines={"toy": engine})
    assert [found.message for found in build(given, known).diagnostics] == messages


def test_what_ships_with_a_model_is_not_told_of() -> None:
    """Its own file says the option, and the user switches it off beside that."""
    given = request(solo(), {"thinker": Said(fields={"restart": "never", "max_restarts": 5})})
    [stage] = given.settings.stages
    shipped = Origin(layer=Layer.DEPLOY, source="model.yaml", line=1, column=1, shipped=True)
    fields = {
        name: replace(each, origin=shipped) if name == "max_restarts" else each
        for name, each in stage.fields.items()
    }
    quiet = replace(given.settings, stages=(replace(stage, fields=fields),))
    assert [found.code for found in build(given, catalog()).diagnostics] == ["PL150"]
    assert build(replace(given, settings=quiet), catalog()).diagnostics == ()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"packed_num_buffers": 2},
            "PL150: `packed_num_buffers` of `weight_transfer_config` needs",
        ),
        (
            {"packed": False, "packed_num_buffers": 2},
            "PL150?: `packed` of `weight_transfer_config` switches `packed_num_buffers` off",
        ),
        ({"packed": True, "packed_num_buffers": 2}, None),
    ],
)
def test_members_of_a_section_need_others_too(
    toy: Toy, keys: Mapping[str, object], message: str | None
) -> None:
    """Each at its own place."""
    found = toy.found({"weight_transfer_config": keys})
    assert [each.startswith(message or "-") for each in found] == [True] * (message is not None)
