"""Stages whose ranks Ray starts, each by an actor of its own, with a Ray of this process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import StageFailedError, StartupError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.ray_jobs import Job, RankJob
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.launchers.fake_ray import FakeActor, FakeRay, installed
from tests.runtime.started import Started, wait_for_exit

pytestmark = pytest.mark.slow

ALONE: Final = LaunchOptions()
SOON: Final = RecoveryPlan(restart_delay=0.0)
AT_NIGHT: Final = pytest.mark.nightly  # such a test starts a dozen processes
END_S: Final = 5.0
"""The stated limit: after the death of a rank its replica is gone within this time."""
CERTIFICATES: Final = Path(__file__).parents[1] / "transport" / "certificates"


def planned(ranks: int = 3, launch: LaunchOptions = ALONE) -> Plan:
    """Three stages, the middle one of several ranks, which Ray starts, and nothing else."""
    stages = [replace(stage, recovery=SOON) for stage in three_stages()]
    stages[1] = replace(stages[1], ranks=ranks, env={"COLOUR": "red", "RANK": "7"})
    plan = fake_plan(stages)
    thinker, talker, vocoder = plan.stages
    talker = replace(talker, setup=replace(talker.setup, executor="ray"))
    return replace(plan, stages=(thinker, talker, vocoder), launch=launch)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """A Ray of two nodes; what was done in it is undone afterwards."""
    fake = FakeRay()
    fake.nodes_of_bundles = ("127.0.0.3", "127.0.0.3", "127.0.0.4")
    with installed(fake, monkeypatch):
        yield fake
    assert not fake.is_joined


def by_rank(actors: Sequence[FakeActor]) -> list[FakeActor]:
    """Actors of one replica, that of rank 0 first."""
    return sorted(actors, key=lambda actor: actor.job.rank if isinstance(actor.job, RankJob) else 0)


def processes(actors: Sequence[FakeActor]) -> list[int]:
    """What they keep."""
    return [pid for actor in by_rank(actors) for pid in actor.stages]


def test_every_rank_has_an_actor_in_a_bundle(ray: FakeRay) -> None:
    """Other stages stay here; outputs are those of one rank, on one node and on two."""
    with Started(planned()) as started:
        (group,) = ray.groups
        assert group.bundles == [{"CPU": 1.0}] * 3
        actors = by_rank(ray.actors)
        assert [type(actor.job) for actor in actors] == [Job, RankJob, RankJob]
        spots = [actor.options["scheduling_strategy"] for actor in actors]
        assert [spot["placement_group_bundle_index"] for spot in spots] == [0, 1, 2]
        assert sorted(where.stage for where in started.omni.pids) == [0, 2]
        pids = processes(ray.actors)
        names = [Path(f"/proc/{pid}/cmdline").read_text("ascii").split("\0")[3] for pid in pids]
        assert names == [f"stagemesh.runtime.{name}_main" for name in ("stage", "rank", "rank")]
        for pid in pids:
            variables = Path(f"/proc/{pid}/environ").read_text("utf-8").split("\0")
            assert "COLOUR=red" in variables
            assert "RANK=7" not in variables
        assert started.run().text == "hi#0hi#1hi#2"
        many = started.many(["a", "b", "c"])
        assert [result.text for result in many] == [f"{x}#0{x}#1{x}#2" for x in "abc"]
    for pid in pids:
        wait_for_exit(pid)


@AT_NIGHT
def test_feeds_to_other_hosts_are_under_tls(ray: FakeRay) -> None:
    """Where the start names certificates."""
    launch = LaunchOptions(
        omni_tls_ca=str(CERTIFICATES / "ours-ca.pem"),
        omni_tls_cert=str(CERTIFICATES / "ours.pem"),
        omni_tls_key=str(CERTIFICATES / "ours.key"),
    )
    with Started(planned(launch=launch)) as started:
        assert started.run().text == "hi#0hi#1hi#2"
    assert len(ray.actors) == 3


@AT_NIGHT
@pytest.mark.parametrize("rank", range(3))
def test_a_rank_that_is_killed_ends_its_replica(ray: FakeRay, rank: int) -> None:
    """On either node; its actor tells, and the replica comes back in the same bundles."""
    with Started(planned()) as started:
        pids = processes(ray.actors)
        options = [actor.options for actor in by_rank(ray.actors)]
        os.kill(pids[rank], signal.SIGKILL)
        began = time.monotonic()
        for pid in pids:
            wait_for_exit(pid)
        assert time.monotonic() - began < END_S
        started.call(started.until(lambda: len(ray.actors) == 6))
        reason = str(started.omni.health().stages[1].replicas[0].reason)
        assert reason.startswith(f"stage `talker` replica `0` rank `{rank}` was killed by SIGKILL")
        started.call(started.until_serving())
        assert [actor.options for actor in by_rank(ray.actors[3:])] == options
        assert started.run().text == "hi#0hi#1hi#2"


@AT_NIGHT
@pytest.mark.parametrize("rank", range(3))
def test_an_actor_that_is_killed_ends_its_replica(ray: FakeRay, rank: int) -> None:
    """Ray says which one it was."""
    with Started(planned()) as started:
        pids = processes(ray.actors)
        by_rank(ray.actors)[rank].die()
        began = time.monotonic()
        for pid in pids:
            wait_for_exit(pid)
        assert time.monotonic() - began < END_S
        started.call(started.until(lambda: len(ray.actors) == 6))
        reason = str(started.omni.health().stages[1].replicas[0].reason)
        who = f"rank `{rank}` " if rank else ""
        assert reason.startswith(f"stage `talker` replica `0` {who}has lost its Ray actor `f9cd`")
        started.call(started.until_serving())


@AT_NIGHT
def test_what_a_rank_raises_elsewhere_is_told(ray: FakeRay) -> None:
    """The first cause, with its rank."""
    with Started(planned()) as started:
        told = r"stage `talker` replica `0` rank `2` failed: RuntimeError: the program fails"
        with pytest.raises(StageFailedError, match=told):
            started.run(params={"talker": {"fail_at": "raise", "at_rank": 2}})
        started.call(started.until_serving())
    assert len(ray.actors) == 6


@AT_NIGHT
@pytest.mark.parametrize("rank", [1, 2])
def test_a_rank_that_never_comes_fails_the_start(ray: FakeRay, rank: int) -> None:
    """With what Ray says of its actor, or the actor itself; the others are gone again."""
    ray.bad_bundle, ray.is_deadly = rank, True
    told = f"replica `0` rank `{rank}` has lost its Ray actor `f9cd` on node"
    with pytest.raises(StartupError, match=told), Started(planned()):
        pass
    ray.is_deadly, ray.plan = False, '{"version": 99}'
    told = f"rank `{rank}` cannot be started by the stagemesh of its node: the plan has version"
    with pytest.raises(StartupError, match=told), Started(planned()):
        pass


def test_no_room_for_a_rank_is_listed(ray: FakeRay) -> None:
    """By bundle."""
    ray.has_room = False
    told = r"Ray has found no room within 60 s: `CPU`: `3` wanted, `1` free"
    with pytest.raises(StartupError, match=told), Started(planned()):
        pass


@AT_NIGHT
def test_one_rank_by_ray_has_one_actor(ray: FakeRay) -> None:
    """It is the stage's own process."""
    with Started(planned(1)) as started:
        (actor,) = ray.actors
        assert isinstance(actor.job, Job)
        assert actor.job.ranks == ()
        assert started.run().text == "hi#0hi#1hi#2"
