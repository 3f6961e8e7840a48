"""Launch options in the plan: shown, listed as far as nothing acts on them, kept when saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config.launch import LaunchOptions, given_options
from stagemesh.plan.launch import is_by_ray, is_spread, launch_reasons, ray_reasons
from stagemesh.plan.place import Placement
from stagemesh.plan.render import plan_text
from stagemesh.plan.save import from_json, to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.setup import Executor
from stagemesh.plan.values import DevicesPlan
from stagemesh.testing.fake_plan import FakeStage, stage_plan
from tests.config.flagged import CATALOG, HOST, codes_of, made_from, planned

MASTER = "--omni-master-address h --omni-master-port 1"
OPTIONS = {
    "stage_id": f"--stage-id 1 {MASTER}",
    "headless": f"--headless --stage-id 1 {MASTER}",
    "omni_master_address": "--omni-master-address h",
    "omni_master_port": "--omni-master-port 1",
    "omni_replica_address": f"--omni-replica-address h --headless --stage-id 1 {MASTER}",
    "omni_dp_size_local": f"--omni-dp-size-local 2 --stage-id 1 {MASTER}",
    "omni_token_file": f"--omni-token-file t {MASTER}",
    "insecure_no_token": f"--insecure-no-token {MASTER}",
    "omni_tls_cert": f"--omni-tls-cert c --omni-tls-key k --omni-tls-ca a {MASTER}",
    "omni_tls_key": f"--omni-tls-key k --omni-tls-cert c --omni-tls-ca a {MASTER}",
    "omni_tls_ca": f"--omni-tls-ca a --omni-tls-cert c --omni-tls-key k {MASTER}",
    "api_server_count": "--api-server-count 2",
    "worker_backend": "--worker-backend ray",
    "ray_address": "--ray-address auto --worker-backend ray",
    "omni_heartbeat_timeout": f"--omni-heartbeat-timeout 3 {MASTER}",
    "stage_init_timeout": "--stage-init-timeout 3",
    "init_timeout": "--init-timeout 3",
    "shutdown_timeout": "--shutdown-timeout 3",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_in_the_plan_with_its_flag(name: str, tmp_path: Path) -> None:
    """Whatever it is, and whoever acts on it."""
    plan = planned(made_from(tmp_path, OPTIONS[name]))
    assert name in given_options(plan.launch)
    flag = f"--{name.replace('_', '-')}"
    assert plan.values[f"launch.{name}"].origin == flag


def test_an_option_of_several_starts_means_nothing_to_one_that_is_alone(tmp_path: Path) -> None:
    """Where it is the head's or a worker's it is in effect."""
    alone = planned(made_from(tmp_path, MASTER)).not_runnable
    for flag in ("--omni-master-address", "--omni-master-port"):
        assert f"nothing comes of `{flag}` without `--stage-id`" in alone
    several = planned(made_from(tmp_path, f"--stage-id 1 {MASTER}")).not_runnable
    assert not [reason for reason in several if "--" in reason]


def test_a_start_by_ray_acts_on_what_others_are_told(tmp_path: Path) -> None:
    """Where its processes find it, and what they say to get in."""
    line = f"--worker-backend ray {MASTER} --omni-token-file t --omni-tls-cert c --omni-tls-key k"
    plan = planned(made_from(tmp_path, f"{line} --omni-tls-ca a --omni-heartbeat-timeout 3"))
    assert not [reason for reason in plan.not_runnable if "--" in reason]


@pytest.mark.parametrize(
    ("places", "backend", "said"),
    [
        ({0: ((0, 1),), 1: ((2,), (3,))}, "ray", []),
        ({0: ((0,), (1,)), 1: ((0,), (1,))}, "ray", []),
        (
            {0: ((0, 1),), 1: ((1,), (0,))},
            "ray",
            ["Ray gives no part of several devices, and `a` and `b` share some"],
        ),
        ({0: ((0, 1),), 1: ((1,), (0,))}, "multi_process", []),
    ],
)
@pytest.mark.parametrize("by", ["backend", "executor"])
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_devices_that_are_shared_by_ray_are_single_ones(
    places: Mapping[int, tuple[tuple[int, ...], ...]],
    backend: str,
    said: list[str],
    kind: str,
    by: str,
) -> None:
    """Of several at once it gives no parts; a slot of a CPU is no device to it."""
    devices = DevicesPlan(kind=kind, count=4, memory_bytes=None, imaginary=False)
    is_ray = backend == "ray"
    options = LaunchOptions(worker_backend="ray" if is_ray and by == "backend" else "multi_process")
    executor: Executor = "ray" if is_ray and by == "executor" else "mp"
    placement = Placement(replicas=places, devices=devices)
    found = list(ray_reasons(options, placement, {0: "a", 1: "b"}, {0: executor, 1: executor}))
    assert found == (said if kind == "cuda" else [])


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_ray_starts_ranks_of_a_start_that_runs_everything(kind: str) -> None:
    """Beside stages that it does not start only on CPU, of which it gives nothing away."""
    devices = DevicesPlan(kind=kind, count=4, memory_bytes=None, imaginary=False)
    placement = Placement(replicas={0: ((0,),), 1: ((1, 2),)}, devices=devices)
    executors: dict[int, Executor] = {0: "uni", 1: "ray"}
    found = list(ray_reasons(LaunchOptions(), placement, {0: "a", 1: "b"}, executors))
    told = "`a`: Ray does not start it, and would give others its devices"
    assert found == ([told] if kind == "cuda" else [])
    several = LaunchOptions(stage_id=1, omni_master_address="h", omni_master_port=1)
    found = list(ray_reasons(several, placement, {0: "a", 1: "b"}, executors))
    assert found[0] == "`b`: Ray starts ranks only where one start runs all stages"


def test_a_start_with_ranks_by_ray_acts_on_what_others_are_told() -> None:
    """As one does whose stages are all started so."""
    options = LaunchOptions(omni_master_address="h", omni_token_file="t")
    assert list(launch_reasons(options, ["uni", "ray"])) == []
    assert len(list(launch_reasons(options, ["uni", "mp"]))) == 2


def test_only_the_start_of_the_orchestrator_watches_others(tmp_path: Path) -> None:
    """A headless one says that it does not."""
    line = f"--stage-id 1 {MASTER} --omni-heartbeat-timeout 3"
    told = "nothing comes of `--omni-heartbeat-timeout` with `--headless`"
    assert told not in planned(made_from(tmp_path, line)).not_runnable
    assert told in planned(made_from(tmp_path, f"{line} --headless")).not_runnable


@pytest.mark.parametrize("executor", ["mp", "ray"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_are_spread_where_ray_starts_several(executor: Executor, ranks: int) -> None:
    """A stage is started by it when either says so."""
    stage = stage_plan(0, FakeStage(name="a", ranks=ranks))
    stage = replace(stage, setup=replace(stage.setup, executor=executor))
    assert is_spread(stage) is (executor == "ray" and ranks > 1)
    assert is_by_ray(LaunchOptions(), stage) is (executor == "ray")
    assert is_by_ray(LaunchOptions(worker_backend="ray"), stage)


def test_an_option_that_says_what_happens_anyway_is_in_effect(tmp_path: Path) -> None:
    """It was typed, so its origin is kept; nothing is missing for it."""
    line = "--worker-backend multi_process --api-server-count 1 --omni-dp-size-local 1"
    plan = planned(made_from(tmp_path, line))
    assert plan.launch == LaunchOptions()
    assert not [reason for reason in plan.not_runnable if "does not act on `--" in reason]
    assert set(plan.values) == {
        "launch.worker_backend",
        "launch.api_server_count",
        "launch.omni_dp_size_local",
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            f"--stage-id 1 {MASTER}",
            "this start runs `mid` alone, and flags for all stages reach it alone",
        ),
        (
            f"--stage-id none {MASTER}",
            "this start runs no stage, so flags for all stages reach none",
        ),
    ],
)
def test_the_plan_of_one_start_says_whom_its_flags_reach(
    line: str, said: str, tmp_path: Path
) -> None:
    """Behind the table of stages."""
    text = plan_text(planned(made_from(tmp_path, line)))
    assert said in text
    assert "launch.omni_master_address = h (--omni-master-address)" in text


def test_a_plan_of_everything_says_nothing_of_it(tmp_path: Path) -> None:
    """No line that nobody needs."""
    assert "launch" not in plan_text(planned(made_from(tmp_path, "")))


@pytest.mark.parametrize("line", OPTIONS.values())
def test_a_saved_plan_keeps_its_launch(line: str, tmp_path: Path) -> None:
    """It is planned again and comes out the same."""
    plan = planned(made_from(tmp_path, line))
    assert from_json(to_json(plan)) == plan
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    again = open_saved(file, HOST, CATALOG)
    assert again.diagnostics == ()
    assert again.plan == plan


def test_flags_of_every_kind_survive_saving(tmp_path: Path) -> None:
    """What they say is in the stages, which are planned again."""
    line = (
        "--tensor-parallel-size 2 --num-replicas 2 --omni-lb-policy random --seed 3"
        " --set mid.tp=1 --no-async-chunk --block-size 16 --compilation-config '{\"level\": 1}'"
        """ --default-sampling-params '{"front": {"temperature": 0.5}}'"""
    )
    plan = planned(made_from(tmp_path, line))
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    again = open_saved(file, HOST, CATALOG)
    assert again.diagnostics == ()
    assert again.plan == plan


def test_an_edited_launch_is_judged_again(tmp_path: Path) -> None:
    """By the rules that made the plan."""
    plan = planned(made_from(tmp_path, f"--stage-id 1 {MASTER}"))
    tree = json.loads(to_json(plan))
    for change, codes in (
        ({"stage_id": 9}, ["CF020"]),
        ({"omni_master_port": None}, ["CF080"]),
        ({"headless": True, "omni_heartbeat_timeout": 3.0}, ["PL047"]),
        ({"omni_master_port": 2}, []),
    ):
        edited = {**tree, "launch": {**tree["launch"], **change}}
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(edited), encoding="utf-8")
        assert codes_of(open_saved(file, HOST, CATALOG)) == codes


def test_p19_a_stage_comes_out_the_same_in_its_own_process(tmp_path: Path) -> None:
    """What is said of stages is said in the same words to every start."""
    said = "--set mid.max_num_seqs=5 --no-async-chunk"
    whole = planned(made_from(tmp_path, said))
    alone = planned(made_from(tmp_path, f"{said} --stage-id 1 --headless {MASTER}"))
    assert alone.stages == whole.stages
    assert (alone.edges, alone.async_chunk) == (whole.edges, whole.async_chunk)
