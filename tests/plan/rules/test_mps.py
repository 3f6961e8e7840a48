"""CUDA MPS: who takes part, who does not and why, and which daemon each device has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagemesh.config.host import Host
from stagemesh.plan.render import plan_text
from stagemesh.plan.setup import MpsPlan
from stagemesh.spec.pipeline import PipelineConfig
from tests.plan.rules.toys import DENOISER, MIXED, ONE, TWO, Toy, listed

ON = {"cuda_mps": True}
PIPE = "CUDA_MPS_PIPE_DIRECTORY"


def cuda(*ids: str) -> Host:
    """A machine with these GPUs."""
    return Host(kind="cuda", count=len(ids), memory_bytes=None, ids=ids)


def daemon(pipe: str | None) -> dict[str, object]:
    """A stage on device 0 that names a daemon, or none."""
    return {"devices": "0", **({} if pipe is None else {"env": {PIPE: pipe}})}


def test_it_is_off_unless_it_is_asked_for(toy: Toy) -> None:
    """Nothing is planned, and nothing is said."""
    for deploy in ({}, {"cuda_mps": False}, {"platforms": {"cuda": ON}}):
        plan = toy.plan(deploy)
        assert (plan.cuda_mps, plan.stages[0].setup.mps, plan.not_runnable) == (False, None, ())


@pytest.mark.parametrize("deploy", [ON, {"platforms": {"cuda": ON}}])
def test_stages_of_one_device_share_it(toy: Toy, deploy: dict[str, object]) -> None:
    """At the root of the file, or for the platform alone."""
    toy = replace(toy, model=TWO, host=cuda("0"))
    plan = toy.plan(deploy)
    sharing = MpsPlan(off_because=None, pipe_directories=(None,))
    assert [stage.setup.mps for stage in plan.stages] == [sharing, sharing]
    assert plan.not_runnable == ()
    toy.keeps(plan)
    assert "CUDA MPS of replica 0: the daemon of the environment, or a private" in plan_text(plan)


@pytest.mark.parametrize(
    ("model", "host", "entry", "reason"),
    [
        (ONE, Host(kind="cpu", count=None, memory_bytes=1), {}, "the devices are `cpu`"),
        (DENOISER, cuda("0"), {}, "it is a diffusion stage"),
        (
            ONE,
            cuda("0"),
            {"distributed_executor_backend": "ray"},
            "its ranks are started elsewhere",
        ),
        (
            ONE,
            cuda("0", "1"),
            {"tensor_parallel_size": 2},
            "a replica has `2` ranks, and MPS shares one device",
        ),
        (ONE, cuda("GPU-1f"), {}, "the device `GPU-1f` has no number"),
    ],
)
def test_a_stage_that_cannot_take_part_says_why(
    toy: Toy, model: PipelineConfig, host: Host, entry: dict[str, object], reason: str
) -> None:
    """It runs without; where no stage is left, a warning says so."""
    toy = replace(toy, model=model, host=host)
    result = toy.build({**ON, **listed(entry)})
    assert result.plan is not None
    assert result.plan.stages[0].setup.mps == MpsPlan(off_because=reason)
    [found] = result.diagnostics
    assert found.message == f"`cuda_mps` has no effect on any stage: {reason}"
    assert (found.code, found.is_error) == ("PL108", False)
    toy.keeps(result.plan)
    assert f"CUDA MPS is off: {reason}\n" in plan_text(result.plan)
    assert not any("MPS" in each for each in result.plan.not_runnable)


def test_what_another_start_runs_does_not_take_part(toy: Toy) -> None:
    """Nor does anything that Ray starts; a start decides for its own stage alone."""
    elsewhere = MpsPlan(off_because="its ranks are started elsewhere")
    sharing = MpsPlan(off_because=None, pipe_directories=(None,))
    address = {"omni_master_address": "127.0.0.1", "omni_master_port": 9000}
    for launch, planned in (
        ({"stage_id": 1, **address}, [elsewhere, sharing]),
        ({"stage_id": 0, "headless": True, **address}, [sharing, elsewhere]),
        ({"stage_id": "none", **address}, [elsewhere, elsewhere]),
        ({"worker_backend": "ray"}, [elsewhere, elsewhere]),
        ({"worker_backend": "multi_process"}, [sharing, sharing]),
    ):
        here = replace(toy, model=TWO, host=cuda("0"), launch=launch)
        plan = here.plan(ON)
        assert [stage.setup.mps for stage in plan.stages] == planned
        here.keeps(plan)


def test_one_stage_may_take_part_and_another_not(toy: Toy) -> None:
    """Then there is nothing to warn of."""
    toy = replace(toy, model=MIXED, host=cuda("0"))
    result = toy.build(ON)
    assert result.diagnostics == ()
    assert result.plan is not None
    reasons = [
        None if stage.setup.mps is None else stage.setup.mps.off_because
        for stage in result.plan.stages
    ]
    assert reasons == [None, "it is a diffusion stage"]


@pytest.mark.parametrize(
    ("first", "second", "daemons"),
    [
        (None, None, (None, None)),
        ("/d", None, ("/d", "/d")),
        ("/d", "/d", ("/d", "/d")),
        ("", None, ("", "")),
    ],
)
def test_stages_of_a_device_have_the_daemon_of_the_first(
    toy: Toy, first: str | None, second: str | None, daemons: tuple[str | None, ...]
) -> None:
    """Later ones say nothing, or the same."""
    toy = replace(toy, model=TWO, host=cuda("0"))
    plan = toy.plan({**ON, **listed(daemon(first), daemon(second))})
    planned = [stage.setup.mps for stage in plan.stages]
    assert planned == [MpsPlan(off_because=None, pipe_directories=(each,)) for each in daemons]
    toy.keeps(plan)
    assert ("a private daemon" in plan_text(plan)) is (first == "")
    assert ("the daemon /d" in plan_text(plan)) is (first == "/d")


@pytest.mark.parametrize(
    ("first", "second", "note"),
    [
        ("/d", "/e", "`s0` takes `/d`"),
        ("/d", "", "`s0` takes `/d`"),
        ("", "/e", "`s0` takes a private daemon"),
        (None, "/e", "`s0` takes the daemon of the parent environment, or a private one"),
    ],
)
def test_another_daemon_on_the_same_device_is_refused(
    toy: Toy, first: str | None, second: str, note: str
) -> None:
    """Told before anything starts, once for the stage."""
    toy = replace(toy, model=TWO, host=cuda("0", "1"))
    found = toy.one({**ON, **listed(daemon(first), daemon(second))})
    assert found.code == "PL107"
    assert found.message == "`s1` asks for another MPS daemon than `s0` on device `0`"
    assert found.origin is not None
    assert found.origin.path == f"stages[1].env.{PIPE}"
    assert [each.message for each in found.notes] == [note]
    elsewhere = listed(daemon(first), {**daemon(second), "devices": "1"})
    assert toy.found({**ON, **elsewhere}) == []
    assert toy.found(listed(daemon(first), daemon(second))) == []
