"""How ranks are started, and which variables of a stage may be set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from stagemesh.plan.render import plan_text
from stagemesh.plan.rules.executor import RAY_EXCLUDED, RAY_FORWARDED
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from tests.plan import making
from tests.plan.rules.toys import DENOISER, MIXED, ONE, Toy, chain, listed

FIELD = "distributed_executor_backend"


@pytest.mark.parametrize(
    ("model", "entry", "expected"),
    [
        (ONE, {}, "uni"),
        (ONE, {"tensor_parallel_size": 2}, "mp"),
        (ONE, {"data_parallel_size": 2}, "uni"),
        (ONE, {"data_parallel_size": 2, "pipeline_parallel_size": 2}, "mp"),
        (ONE, {"num_replicas": 2}, "uni"),
        (ONE, {FIELD: "mp"}, "mp"),
        (DENOISER, {}, "uni"),
        (DENOISER, {"ulysses_degree": 2}, "mp"),
        (DENOISER, {"data_parallel_size": 2}, "mp"),
        (DENOISER, {"vae_patch_parallel_size": 1}, "uni"),
        (DENOISER, {FIELD: "mp"}, "mp"),
        (DENOISER, {FIELD: "ray", "ulysses_degree": 2}, "ray"),
        (DENOISER, {FIELD: None}, "uni"),
    ],
)
def test_an_executor_that_was_not_named_follows_from_the_ranks(
    toy: Toy, model: PipelineConfig, entry: dict[str, object], expected: str
) -> None:
    """One rank runs in the process; independent groups by tokens have an engine each."""
    toy = replace(toy, model=model, devices="8xH100")
    plan = toy.plan(listed(entry))
    assert plan.stages[0].setup.executor == expected


@pytest.mark.parametrize("kind", list(ExecutionType))
def test_p09_a_value_for_all_stages_reaches_every_kind(toy: Toy, kind: ExecutionType) -> None:
    """Ray starts the ranks of any stage."""
    toy = replace(toy, model=chain(kind))
    plan = toy.plan({FIELD: "ray", "stages": [{"stage_id": 0, "engine": "auto"}]})
    assert plan.stages[0].setup.executor == "ray"
    toy.keeps(plan)
    assert not [reason for reason in plan.not_runnable if "ray" in reason]
    assert "s0: ranks are started by ray\n" in plan_text(plan)


def test_executors_that_run_today_are_no_hindrance(toy: Toy) -> None:
    """A stage is a process in any case."""
    for name in ("uni", "mp", "ray"):
        assert toy.plan({FIELD: name}).not_runnable == ()


def test_an_engine_that_starts_its_ranks_is_not_told_to_use_ray(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan says so."""
    monkeypatch.setattr(making, "TOY", replace(making.TOY, owns_ranks=True))
    told = "`s0`: engine `toy` starts its ranks itself, and not by `ray`"
    assert told in toy.plan({FIELD: "ray"}).not_runnable
    assert toy.plan({FIELD: "mp"}).not_runnable == ()


def test_p09_an_external_launcher_starts_no_diffusion_stage(toy: Toy) -> None:
    """It is refused where it was written, for that stage alone."""
    toy = replace(toy, model=MIXED)
    found = toy.one({FIELD: "external_launcher"})
    assert found.code == "PL100"
    assert found.message == (
        "`distributed_executor_backend: external_launcher` does not start the diffusion stage `s1`"
    )
    assert found.origin is not None
    assert found.origin.path == FIELD
    plan = toy.plan({FIELD: "external_launcher", **listed({}, {FIELD: "mp"})})
    assert [stage.setup.executor for stage in plan.stages] == ["external_launcher", "mp"]
    assert "`s0`: nothing starts ranks by `external_launcher` yet" in plan.not_runnable


def test_one_process_runs_one_rank(toy: Toy) -> None:
    """More would need more processes."""
    toy = replace(toy, devices="2xH100")
    [found] = toy.found(listed({FIELD: "uni", "tensor_parallel_size": 2}))
    assert found == "PL101: `distributed_executor_backend: uni` runs one rank, and `s0` has `2`"


@pytest.mark.parametrize(
    "name",
    ["VLLM_USE_V1", "OMNI_X", "NCCL_DEBUG", "UCX_TLS", "HF_HOME", "PYTHONPATH", "OMP_NUM_THREADS"],
)
def test_ray_gets_what_is_documented(name: str) -> None:
    """Settings of engines, of collectives and of Hugging Face."""
    assert RAY_FORWARDED.fullmatch(name)
    assert not RAY_EXCLUDED.fullmatch(name)


@pytest.mark.parametrize("name", ["HOME", "MY_VLLM_X", "AWS_REGION", "XHF_HOME"])
def test_ray_gets_nothing_else(name: str) -> None:
    """Whole names count."""
    assert not RAY_FORWARDED.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["RANK", "LOCAL_RANK", "MASTER_PORT", "VLLM_HOST_IP", "VLLM_DP_RANK", "RAY_ADDRESS"]
)
def test_variables_that_ray_keeps_apart_are_warned_of(toy: Toy, name: str) -> None:
    """Only where Ray starts the ranks; elsewhere they are set."""
    assert RAY_EXCLUDED.fullmatch(name)
    env = {"env": {name: "1", "COLOUR": "red"}}
    assert toy.found(listed({**env, FIELD: "ray"})) == [
        f"PL102?: `{name}` in `env` of `s0` is not sent to Ray's workers"
    ]
    by_ray = replace(toy, launch={"worker_backend": "ray"})
    assert by_ray.found(listed(env)) == toy.found(listed({**env, FIELD: "ray"}))
    assert replace(toy, launch={"worker_backend": "multi_process"}).found(listed(env)) == []
    assert toy.found(listed(env)) == []


@pytest.mark.parametrize(
    "name", ["CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"]
)
@pytest.mark.parametrize("executor", [{}, {FIELD: "ray"}])
def test_p27_a_stage_hides_no_devices(toy: Toy, name: str, executor: Mapping[str, object]) -> None:
    """`devices` is the one place where they are chosen."""
    found = toy.one(listed({"env": {"COLOUR": "red", name: "1"}, **executor}))
    assert (found.code, found.message) == ("PL113", f"`env` of `s0` sets `{name}`")
    assert found.origin is not None
    assert found.origin.path == f"stages[0].env.{name}"
