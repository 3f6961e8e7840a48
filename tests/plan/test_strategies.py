"""The Python surface of strategies: the worked examples, and what is raised."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from stagemesh import strategy
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.errors import DiagnosticError
from stagemesh.plan.make import make
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.strategy import (
    AxisTranslationError,
    MeshAxis,
    MeshAxisKind,
    OmniParallelConfig,
    PartitionByHash,
    Policy,
    RouteByStage,
    StrategyApplyError,
    StrategyLoadError,
    StrategySpec,
    apply_strategy_specs,
    check_device_layout,
    load_strategies,
    translate_strategy_stack,
)
from tests.plan.making import catalog, pipeline, stage

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "qwen2_5_omni"
HOST: Final = Host(kind="cpu", count=None, memory_bytes=2**40)
OVERRIDES: Final = '{"0": {"devices": "0,1"}, "1": {"devices": "2"}, "2": {"devices": "2"}}'
INPUTS: Final = PlanInputs(model=str(FIXTURE), stage_overrides=OVERRIDES)
FREE: Final = PlanInputs(
    model=str(FIXTURE),
    stage_overrides={str(stage_id): {"devices": None} for stage_id in range(3)},
    devices="8xH200",
)
SERIAL: Final = OmniParallelConfig()


def spec(kind: str, size: int, **more: object) -> StrategySpec:
    """One axis."""
    return StrategySpec(mesh_axis=MeshAxis(kind=kind, size=size), **more)  # type: ignore[arg-type]


TP2: Final = spec("tp", 2)
TWICE: Final = spec("stage_replica", 2, routing=RouteByStage(policy=Policy.ROUND_ROBIN))


# --- the worked examples --------------------------------------------------------------------------


def test_example_1_comes_to_the_documented_sizes() -> None:
    """Tensor parallelism of two on the thinker, one everywhere else, no policy."""
    result = apply_strategy_specs(INPUTS, {"thinker": [TP2]}, host=HOST)
    thinker = result.stages["thinker"]
    assert (thinker.tensor_parallel_size, thinker.world_size) == (2, 2)
    assert thinker.data_parallel_size == thinker.pipeline_parallel_size == 1
    assert (thinker.stage_replica_size, thinker.omni_lb_policy) == (1, None)
    assert dict(thinker.l1_owners) == {"tp": "engine"}
    assert result.stages["talker"] == result.stages["code2wav"] == SERIAL
    assert (result.omni_lb_policy, result.warnings) == (None, ())


def test_example_2_comes_to_the_documented_sizes_and_policy() -> None:
    """Two copies of the thinker, and the one knob for all of the pipeline."""
    result = apply_strategy_specs(INPUTS, {"thinker": [TWICE]}, host=HOST)
    thinker = result.stages["thinker"]
    assert (thinker.tensor_parallel_size, thinker.world_size) == (1, 1)
    assert (thinker.stage_replica_size, thinker.omni_lb_policy) == (2, "round-robin")
    assert dict(thinker.l1_owners) == {"stage_replica": "delegated"}
    assert result.stages["talker"].omni_lb_policy is None
    assert result.omni_lb_policy == "round-robin"


def test_specs_and_the_file_that_says_the_same_give_one_plan() -> None:
    """But for the places where values were written."""
    file = {"strategies": {"thinker": [{"axis": "tp", "size": 2}]}}
    one = make(PlanInputs(model=str(FIXTURE), strategy_config=file, devices="8xH200"), HOST)
    other = make(
        PlanInputs(model=str(FIXTURE), strategy_config={"thinker": [TP2]}, devices="8xH200"), HOST
    )
    assert one.plan == other.plan
    assert one.diagnostics == other.diagnostics


# --- one stack ------------------------------------------------------------------------------------


def test_a_stack_is_counted_by_the_planner() -> None:
    """T15: tp x dp is the world; copies and experts are not part of it."""
    stack = [TP2, spec("dp", 2), spec("ep", 4), spec("pp", 2), TWICE]
    config = translate_strategy_stack(stack, stage="thinker", facts=StageFacts(num_experts=8))
    assert config.world_size == 8
    assert config.mesh == (("dp", 2), ("pp", 2), ("tp", 2))
    assert (config.enable_expert_parallel, config.stage_replica_size) == (True, 2)


def test_a_stack_of_a_diffusion_stage_has_its_own_sizes() -> None:
    """Sequence, guidance, shards and the VAE."""
    config = translate_strategy_stack(
        [
            spec("sp_ulysses", 2),
            spec("sp_ring", 2, shard_extension={"exchange": "allgather"}),
            spec("cfg", 2),
            spec("hsdp", 8, shard_extension={"replicate": 2}),
            spec("vae_pp", 4),
        ],
        execution_type=ExecutionType.DIFFUSION,
    )
    assert config.world_size == 8
    assert (config.ulysses_degree, config.ring_degree, config.allgather_degree) == (2, 1, 2)
    assert (config.cfg_parallel_size, config.vae_patch_parallel_size) == (2, 4)
    assert (config.use_hsdp, config.hsdp_shard_size, config.hsdp_replicate_size) == (True, 4, 2)


@pytest.mark.parametrize(
    ("routing", "flag"),
    [
        (None, "round-robin"),
        (RouteByStage(policy=Policy.RANDOM), "random"),
        (RouteByStage(policy=Policy.LEAST_QUEUE), "least-queue-length"),
        (PartitionByHash(key="user"), "hash"),
    ],
)
def test_a_policy_is_spelled_as_its_flag(
    routing: RouteByStage | PartitionByHash | None, flag: str
) -> None:
    """The words of `--omni-lb-policy`; one copy has none."""
    two = translate_strategy_stack([spec("stage_replica", 2, routing=routing)])
    one = translate_strategy_stack([spec("stage_replica", 1, routing=routing)])
    assert (two.omni_lb_policy, one.omni_lb_policy) == (flag, None)


def test_all_that_is_wrong_with_a_stack_is_raised_at_once() -> None:
    """T17, T19: the error is one of diagnostics, each with the path of the spec."""
    stack = [TP2, TP2, spec("dp", 2, shard_extension={"l1_owner": "delegated"}), spec("tq", 1)]
    with pytest.raises(AxisTranslationError) as caught:
        translate_strategy_stack(stack, stage="thinker")
    assert isinstance(caught.value, DiagnosticError)
    assert [found.code for found in caught.value.diagnostics] == ["AX002", "AX005", "AX001"]
    paths = [found.origin.path for found in caught.value.diagnostics if found.origin is not None]
    assert paths == [
        "strategies.thinker[1].axis",
        "strategies.thinker[2].l1_owner",
        "strategies.thinker[3].axis",
    ]


def test_a_layout_that_cannot_be_is_raised_as_well() -> None:
    """T16: found by the planner rather than by the reader."""
    with pytest.raises(AxisTranslationError, match=r"AX022.*does not match tp x dp = `2`"):
        translate_strategy_stack([TP2, spec("ep", 4)])


# --- a model --------------------------------------------------------------------------------------


def test_strategies_are_applied_to_a_pipeline_alone() -> None:
    """Without a checkpoint and devices; each stage keeps a policy of its own."""
    model = pipeline(stage(0, "thinker"), stage(1, "talker", final_output=True))
    random = spec("stage_replica", 2, routing=RouteByStage(policy=Policy.RANDOM))
    result = apply_strategy_specs(
        model, {"thinker": [TWICE], "talker": [random]}, catalog=catalog(model)
    )
    policies = {name: config.omni_lb_policy for name, config in result.stages.items()}
    assert policies == {"thinker": "round-robin", "talker": "random"}
    assert result.omni_lb_policy is None
    nothing = apply_strategy_specs(model, {}, catalog=catalog(model))
    assert list(nothing.stages.values()) == [SERIAL, SERIAL]


@pytest.mark.parametrize(
    ("specs", "codes"),
    [
        ({"thinkr": [TP2]}, ["CF020"]),
        ({"thinkr": []}, ["CF020"]),
        ({"thinker": [spec("tp", 3)]}, ["AX030"]),
        ({"thinker": [spec("dp", 16)]}, ["PL014"]),
        ({"thinker": [spec("sp_ring", 2)]}, ["AX020"]),
        ({"thinker": [spec("tp", 2, routing=RouteByStage())]}, ["AX008"]),
    ],
)
def test_what_does_not_fit_the_model_is_raised_at_once(
    specs: dict[str, list[StrategySpec]], codes: list[str]
) -> None:
    """Stages, axes and devices."""
    with pytest.raises(StrategyApplyError) as caught:
        apply_strategy_specs(FREE, specs, host=HOST)
    assert [found.code for found in caught.value.diagnostics] == codes


def test_a_warning_is_part_of_the_result() -> None:
    """T12: what was typed wins over the strategy."""
    typed = PlanInputs(
        model=str(FIXTURE),
        stage_overrides={"thinker": {"num_replicas": 1, "devices": "0"}},
    )
    result = apply_strategy_specs(typed, {"thinker": [TWICE]}, host=HOST)
    assert [found.code for found in result.warnings] == ["AX007"]
    assert result.stages["thinker"].stage_replica_size == 1


def test_two_strategies_are_refused() -> None:
    """Neither is dropped in silence; the host is that of this machine when it is not given."""
    file = {"strategies": {"thinker": [{"axis": "tp", "size": 2}]}}
    inputs = PlanInputs(model=str(FIXTURE), strategy_config=file)
    with pytest.raises(StrategyApplyError, match="AX053"):
        apply_strategy_specs(inputs, {"thinker": [TWICE]})


# --- devices and files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "world", "replicas", "expected"),
    [
        ("0,1", 2, 1, ((0, 1),)),
        ("0,1", 2, 2, ((0, 1), (2, 3))),
        ("0,1,2,3", 2, 2, ((0, 1), (2, 3))),
        ("4, 6", 1, 2, ((4,), (6,))),
        (None, 1, 3, ((0,), (1,), (2,))),
    ],
)
def test_devices_are_laid_out_for_every_copy(
    devices: str | None, world: int, replicas: int, expected: tuple[tuple[int, ...], ...]
) -> None:
    """T30, T31: a list for one copy, a pool for all, or the planner's own choice."""
    config = OmniParallelConfig(mesh=(("tp", world),), stage_replica_size=replicas)
    assert check_device_layout(devices, config) == expected


@pytest.mark.parametrize(
    ("devices", "code"), [("0", "PL010"), ("0,0", "PL011"), ("a,b", "CF013"), ("", "CF013")]
)
def test_devices_that_do_not_fit_are_raised(devices: str, code: str) -> None:
    """T26: with the name of the stage."""
    config = OmniParallelConfig(mesh=(("tp", 2),))
    with pytest.raises(StrategyApplyError, match=f"{code}.*thinker"):
        check_device_layout(devices, config, stage="thinker")


def test_a_file_is_loaded_into_specs(tmp_path: Path) -> None:
    """From a path or a mapping; patterns are filled in."""
    file = tmp_path / "s.yaml"
    file.write_text("strategies: {thinker: [{axis: tp, size: 2}], talker: []}", encoding="utf-8")
    loaded = load_strategies(file)
    assert loaded == load_strategies(
        {"strategies": {"thinker": [{"axis": "tp", "size": 2}], "talker": []}}
    )
    assert loaded["talker"] == ()
    assert translate_strategy_stack(loaded["thinker"]) == translate_strategy_stack([TP2])


@pytest.mark.parametrize(
    ("text", "match"),
    [("[", "CF002"), ("strategies: {thinker: [{axis: tq, size: x}]}", r"AX001(.*\n)+.*CF012")],
)
def test_a_file_that_cannot_be_loaded_is_raised(tmp_path: Path, text: str, match: str) -> None:
    """With the place in the file."""
    file = tmp_path / "s.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(StrategyLoadError, match=match):
        load_strategies(str(file))


# --- arguments of other types ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ExecutionType))
def test_the_kind_of_a_stage_is_a_member_or_its_text(kind: ExecutionType) -> None:
    """As the kind of an axis is."""
    two = [StrategySpec(mesh_axis=MeshAxis(kind="stage_replica", size=2))]
    named = translate_strategy_stack(two, execution_type=kind.value)
    assert named == translate_strategy_stack(two, execution_type=kind)
    assert named.stage_replica_size == 2


def test_a_kind_that_does_not_exist_is_told_with_those_that_do() -> None:
    """Where an `ExecutionType` is to be found need not be known."""
    with pytest.raises(AxisTranslationError) as caught:
        translate_strategy_stack([TP2], execution_type="dit")
    [found] = caught.value.diagnostics
    for kind in ExecutionType:
        assert f"`{kind.value}`" in found.message
    assert found.message.endswith("got text `dit`")


@pytest.mark.parametrize(
    "function",
    [load_strategies, translate_strategy_stack, apply_strategy_specs, check_device_layout],
)
def test_all_types_of_arguments_are_where_the_functions_are(
    function: Callable[..., object],
) -> None:
    """Nobody has to know another room for them; opened files are the command line's own."""
    named = {
        each.__name__
        for hint in typing.get_type_hints(function).values()
        for each in _types_in(hint)
        if each.__module__.startswith("stagemesh.")
    }
    assert named - {"OpenedFile"} <= set(strategy.__all__)


def _types_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from _types_in(part)


Odd: TypeAlias = Any
"""Something that no argument takes."""

ODD: Final = (3, "x", ["a"], {"a": 1}, 1.5, b"x", object())


@pytest.mark.parametrize("odd", ODD)
def test_arguments_of_another_type_are_told_by_name(odd: Odd) -> None:
    """Each as the error of its function, and nothing else."""
    stacks = {"thinker": [TP2]}
    calls: dict[str, tuple[type[DiagnosticError], Callable[[], object]]] = {
        "execution_type": (
            AxisTranslationError,
            lambda: translate_strategy_stack([TP2], execution_type=odd),
        ),
        "facts": (AxisTranslationError, lambda: translate_strategy_stack([TP2], facts=odd)),
        "catalog": (AxisTranslationError, lambda: translate_strategy_stack([TP2], catalog=odd)),
        "target": (StrategyApplyError, lambda: apply_strategy_specs(odd, stacks)),
        "host": (StrategyApplyError, lambda: apply_strategy_specs(INPUTS, stacks, host=odd)),
        "config": (StrategyApplyError, lambda: check_device_layout("0", odd)),
    }
    if not isinstance(odd, str):
        calls["stage"] = (AxisTranslationError, lambda: translate_strategy_stack([], stage=odd))
    if not isinstance(odd, list):
        calls["specs"] = (AxisTranslationError, lambda: translate_strategy_stack(odd))
    if not isinstance(odd, str | dict):
        calls["given"] = (StrategyLoadError, lambda: load_strategies(odd))
    for name, (kind, call) in calls.items():
        with pytest.raises(kind) as caught:
            call()
        [found] = caught.value.diagnostics
        assert (found.code, found.message.partition(" ")[0]) == ("CF012", f"`{name}`")
        assert str(found.origin).endswith(f"({name}=...)")


@pytest.mark.parametrize("odd", [None, 3, "x", [TP2]])
def test_specs_without_stages_are_told(odd: Odd) -> None:
    """They are a mapping from names of stages."""
    with pytest.raises(StrategyApplyError, match=r"CF012.*mapping from stages"):
        apply_strategy_specs(INPUTS, odd, host=HOST)


@pytest.mark.parametrize("odd", [None, "x", 1.5, object(), (("tp",),), ()])
def test_a_configuration_with_wrong_fields_has_no_layout(odd: Odd) -> None:
    """All of the wrong ones are told; an empty mesh is none of them."""
    config = OmniParallelConfig(tensor_parallel_size=odd, stage_replica_size=odd, mesh=odd)
    expected = ["tensor_parallel_size", "stage_replica_size", "mesh"]
    with pytest.raises(StrategyApplyError) as caught:
        check_device_layout(None, config)
    told = [str(found.origin and found.origin.path) for found in caught.value.diagnostics]
    assert [path.partition("[")[0] for path in told] == expected[: 2 if odd == () else 3]
    with pytest.raises(StrategyApplyError):
        config.world_size  # noqa: B018  the access is what raises
    with pytest.raises(StrategyApplyError, match="CF013"):
        check_device_layout(None, OmniParallelConfig(stage_replica_size=0))


def test_specs_are_loaded_as_they_are() -> None:
    """What `strategy_config` takes, `load_strategies` takes."""
    assert load_strategies({"thinker": [TP2]}) == load_strategies(
        {"strategies": {"thinker": [{"axis": "tp", "size": 2}]}}
    )


# --- the names ------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    """`MeshAxisKind` is made on first use; an unknown name is an `AttributeError`."""
    assert strategy.__all__ == sorted(strategy.__all__)
    assert all(getattr(strategy, name).__doc__ for name in strategy.__all__)
    assert MeshAxisKind.TP == "tp"
    assert strategy.MeshAxisKind is MeshAxisKind
    with pytest.raises(AttributeError, match="no attribute `Nothing`"):
        strategy.Nothing  # noqa: B018  the access is what raises
