"""What goes along to Ray: variables, resources, device numbers; and what is said when it fails."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from stagemesh.errors import StartupError
from stagemesh.plan.values import DevicesPlan, RankPlan, ReplicaPlan
from stagemesh.runtime.launchers.far_rank import RankLinks
from stagemesh.runtime.launchers.ray_bundles import Share, as_seen, missing, request_for
from stagemesh.runtime.launchers.ray_cluster import cause, load_ray
from stagemesh.runtime.launchers.ray_environment import ray_environment
from stagemesh.runtime.launchers.ray_jobs import Job, RankJob
from stagemesh.runtime.replica import ReplicaId
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.launchers.fake_ray import DEATH

FORWARDED = (
    "VLLM_USE_V1",
    "OMNI_X",
    "DIFFUSION_CACHE",
    "NCCL_DEBUG",
    "TORCH_NCCL_BLOCKING_WAIT",
    "UCX_TLS",
    "HF_TOKEN",
    "HF_HOME",
    "HUGGING_FACE_HUB_TOKEN",
    "TRANSFORMERS_OFFLINE",
    "PYTHONPATH",
    "CUDA_LAUNCH_BLOCKING",
    "OMP_NUM_THREADS",
)
NEVER = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "VLLM_DP_RANK",
    "VLLM_DP_MASTER_IP",
    "VLLM_HOST_IP",
    "HOST_IP",
    "RAY_ADDRESS",
    "RAY_RUNTIME_ENV_HOOK",
)
OTHER = ("HOME", "PATH", "STAGEMESH_TOKEN", "MY_VLLM_X", "PYTHONPATH_2", "AWS_SECRET_ACCESS_KEY")


@pytest.mark.parametrize(
    ("names", "of_ours", "of_the_stage"),
    [(FORWARDED, {"a"}, {"b"}), (OTHER, set(), {"b"}), (NEVER, set(), set())],
    ids=["forwarded", "other", "never"],
)
def test_a_variable_reaches_a_node_by_its_name(
    names: tuple[str, ...], of_ours: set[str], of_the_stage: set[str]
) -> None:
    """From this process, from the stage's own, and from both, of which the stage's wins."""
    for name in names:
        assert set(ray_environment({name: "a"}, {}).values()) == of_ours
        assert set(ray_environment({}, {name: "b"}).values()) == of_the_stage
        assert set(ray_environment({name: "a"}, {name: "b"}).values()) == of_the_stage


def test_a_job_shows_no_secret() -> None:
    """Wherever it is printed."""
    job: Job | RankJob = Job(
        plan="plan",
        stage=1,
        replica=2,
        master=("h", 1),
        token=b"hidden",
        environment={"HF_TOKEN": "hidden"},
    )
    assert repr(job) == str(job) == "Job(stage=1, replica=2)"
    job = RankJob(
        plan="plan",
        stage=1,
        replica=2,
        master=("h", 1),
        token=b"hidden",
        environment={"HF_TOKEN": "hidden"},
        rank=3,
        links=RankLinks(control=4, feed=5),
    )
    assert repr(job) == str(job) == "RankJob(stage=1, replica=2, rank=3)"


def replica(index: int, *devices: int) -> ReplicaPlan:
    """A replica on devices."""
    ranks = tuple(
        RankPlan(rank=rank, device=device, coords={}) for rank, device in enumerate(devices)
    )
    return ReplicaPlan(index=index, ranks=ranks)


ONE, TWO, THREE = (ReplicaId(stage=stage, replica=0) for stage in range(3))


@pytest.mark.parametrize(
    ("kind", "places", "bundles", "shares"),
    [
        (
            "cpu",
            {ONE: (0, 1), TWO: (0,)},
            [{"CPU": 2}, {"CPU": 1}],
            {ONE: (0, 2, 0), TWO: (1, 1, 0)},
        ),
        (
            "cuda",
            {ONE: (4, 5), TWO: (6,)},
            [{"CPU": 2, "GPU": 2}, {"CPU": 1, "GPU": 1}],
            {ONE: (0, 2, 2), TWO: (1, 1, 1)},
        ),
        (
            "cuda",
            {ONE: (1,), TWO: (0,), THREE: (1,)},
            [{"CPU": 1, "GPU": 1}, {"CPU": 2, "GPU": 1}],
            {TWO: (0, 1, 1), ONE: (1, 1, 0.5), THREE: (1, 1, 0.5)},
        ),
        (
            "cuda",
            {ONE: (0,), TWO: (0,), THREE: (0,)},
            [{"CPU": 3, "GPU": 1}],
            {ONE: (0, 1, 0.3333), TWO: (0, 1, 0.3333), THREE: (0, 1, 0.3333)},
        ),
    ],
    ids=["CPUs", "own devices", "a shared device", "thirds"],
)
def test_a_replica_asks_for_what_it_needs(
    kind: str,
    places: Mapping[ReplicaId, tuple[int, ...]],
    bundles: list[Mapping[str, float]],
    shares: Mapping[ReplicaId, tuple[int, float, float]],
) -> None:
    """One bundle each; those that share a device share a bundle, which Ray keeps on one node."""
    request = request_for([(where, replica(0, *at)) for where, at in places.items()], kind)
    assert list(request.bundles) == bundles
    assert request.shares == {
        where: (Share(bundle=bundle, cpus=cpus, gpus=gpus),)
        for where, (bundle, cpus, gpus) in shares.items()
    }


@pytest.mark.parametrize(("kind", "gpus"), [("cpu", 0), ("cuda", 1)])
def test_ranks_that_ray_starts_have_a_bundle_each(kind: str, gpus: float) -> None:
    """Those of other replicas stay together, in bundles before."""
    places = {ONE: (0, 1, 2), TWO: (3, 4)}
    replicas = [(where, replica(0, *at)) for where, at in places.items()]
    request = request_for(replicas, kind, [ONE])
    device = {"GPU": 1.0} if gpus else {}
    two = {"GPU": 2.0} if gpus else {}
    assert list(request.bundles) == [{"CPU": 2, **two}, *[{"CPU": 1, **device}] * 3]
    assert request.shares == {
        TWO: (Share(bundle=0, cpus=2, gpus=2 * gpus),),
        ONE: tuple(Share(bundle=bundle, cpus=1, gpus=gpus) for bundle in (1, 2, 3)),
    }


@pytest.mark.parametrize(
    ("free", "nodes", "told"),
    [
        (
            {"CPU": 1.0},
            [{"CPU": 8.0}],
            ["`CPU`: `4` wanted, `1` free", "`GPU`: `2` wanted, `0` free"]
            + ["no node has `{CPU: 2, GPU: 1}`"] * 2,
        ),
        (
            {"CPU": 8.0, "GPU": 2.0},
            [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 2.0}],
            ["no node has `{CPU: 2, GPU: 1}`"] * 2,
        ),
        (
            {"CPU": 8.0, "GPU": 2.0},
            [{"CPU": 8.0, "GPU": 4.0}] * 2,
            ["no node has room beside what runs there"],
        ),
    ],
    ids=["too little", "no node", "pieces"],
)
def test_what_is_missing_is_listed(
    free: Mapping[str, float], nodes: list[Mapping[str, float]], told: list[str]
) -> None:
    """By resource, and by bundle where no node could ever hold it."""
    assert list(missing([{"CPU": 2.0, "GPU": 1.0}] * 2, free, nodes)) == list(dict.fromkeys(told))


def test_a_process_has_the_devices_that_ray_shows_it() -> None:
    """By the names that they have on its node; on CPU there is nothing to show."""
    plan = fake_plan(three_stages(talker=(2, "random")))
    talker = replace(plan.stages[1], replicas=(replica(0, 4, 5), replica(1, 7, 6)))
    plan = replace(plan, stages=(plan.stages[0], talker, plan.stages[2]))
    where = ReplicaId(stage=1, replica=1)
    assert as_seen(plan, where, ()) == plan
    devices = DevicesPlan(
        kind="cuda", count=8, memory_bytes=None, imaginary=False, ids=tuple("01234567")
    )
    plan = replace(plan, devices=devices)
    seen = as_seen(plan, where, ("2", "GPU-a"))
    assert seen.devices.ids == ("2", "GPU-a")
    assert [rank.device for rank in seen.stages[1].replicas[1].ranks] == [1, 0]
    assert seen.stages[1].replicas[0] == talker.replicas[0]
    assert (seen.stages[0], seen.stages[2]) == (plan.stages[0], plan.stages[2])
    with pytest.raises(StartupError, match="Ray shows it `1` devices, and it needs `2`"):
        as_seen(plan, where, ("2",))
    alone = as_seen(plan, where, ("2",), rank=1)
    assert [rank.device for rank in alone.stages[1].replicas[1].ranks] == [7, 0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            DEATH,
            "has lost its Ray actor `f9cd` on node `10.0.0.7`, says Ray: Its worker has died.",
        ),
        ("", "has lost its Ray actor, says Ray: RuntimeError"),
        ("no sense", "has lost its Ray actor, says Ray: no sense"),
        ("x" * 500, f"has lost its Ray actor, says Ray: {'x' * 240} ..."),
        ("a b. " * 100, f"has lost its Ray actor, says Ray: {'a b. ' * 47}a b ..."),
    ],
)
def test_a_death_is_told_in_one_line(text: str, told: str) -> None:
    """With the actor and its node, as far as Ray has named them."""
    assert cause(RuntimeError(text)) == told


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else needs it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(StartupError, match=r"need Ray: `pip install 'stagemesh\[ray\]'`"):
        load_ray()
