"""Starts by Ray, with a Ray that runs its actors in this process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.config.environment import TOKEN
from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import ClosedError, DiagnosticError, StagemeshError, StartupError
from stagemesh.plan.save import to_json
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers import ray as ray_module
from stagemesh.runtime.launchers import ray_cluster
from stagemesh.runtime.launchers.ray_bundles import Request
from stagemesh.runtime.launchers.ray_cluster import RayCluster
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.testing.fake_plan import FakeStage, fake_plan, three_stages
from tests.runtime.launchers.fake_ray import FakeActor, FakeRay, installed
from tests.runtime.started import Started, wait_for_exit

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

SOON: Final = RecoveryPlan(restart_delay=0.0)
ALONE: Final = (FakeStage(name="alone", final="text"),)
NO_BUNDLES: Final = Request(bundles=(), shares={})


def planned(stages: Sequence[FakeStage] = ALONE, **launch: object) -> Plan:
    """Stages that Ray starts, and that come back at once."""
    options = LaunchOptions(worker_backend="ray", **launch)  # type: ignore[arg-type]
    ready = [replace(stage, recovery=SOON) for stage in stages]
    return replace(fake_plan(ready), launch=options)


def stage_of(actor: FakeActor) -> int:
    """The stage that an actor keeps a process of."""
    assert actor.job is not None
    return actor.job.stage


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """A Ray that nobody has joined; what was done in it is undone afterwards."""
    with installed(FakeRay(), monkeypatch) as fake:
        yield fake


def fails(plan: Plan, kind: type[StagemeshError], match: str) -> None:
    """Start in vain; closing afterwards is nothing special."""

    async def start() -> None:
        async with AsyncOmni(plan):
            pass

    with pytest.raises(kind, match=match):
        asyncio.run(start())


def until(started: Started, holds: Callable[[], bool]) -> None:
    """Wait on the system's loop."""
    started.call(started.until(holds))


def test_every_replica_has_an_actor_in_a_bundle(ray: FakeRay) -> None:
    """They come to the head's door, do their work, and end with it; so does Ray."""
    with Started(planned(three_stages())) as started:
        assert len(started.run().outputs) == 6
        actors = sorted(ray.actors, key=stage_of)
        assert [actor.options["num_cpus"] for actor in actors] == [1.0] * 3
        assert [actor.options["max_restarts"] for actor in actors] == [0] * 3
        spots = [actor.options["scheduling_strategy"] for actor in actors]
        assert [spot["placement_group_bundle_index"] for spot in spots] == [0, 1, 2]
        (group,) = ray.groups
        assert group.bundles == [{"CPU": 1.0}] * 3
        assert all(spot["placement_group"] is group for spot in spots)
        stages = [pid for actor in actors for pid in actor.stages]
        assert len(stages) == 3
        tokens = {actor.job.token for actor in ray.actors if actor.job is not None}
        assert [len(token) for token in tokens] == [32]
    for pid in stages:
        wait_for_exit(pid)
    assert ray.inits == [{}]
    assert ray.num_shutdowns == 1


def test_a_replica_that_joins_has_a_bundle_of_its_own(ray: FakeRay) -> None:
    """One that comes again takes the bundle that it had."""
    with Started(planned()) as started:
        started.call(started.omni.scale("alone", 2))
        assert [group.bundles for group in ray.groups] == [[{"CPU": 1.0}]] * 2
        started.call(started.omni.scale("alone", 1))
        started.call(started.omni.scale("alone", 2))
        assert len(ray.groups) == 2
        assert len(ray.actors) == 3
        assert ray.actors[1].options == ray.actors[2].options


def test_an_actor_that_dies_is_named_with_what_ray_says(ray: FakeRay) -> None:
    """Its stage ends with it, and comes back with another actor in the same bundle."""
    with Started(planned(three_stages())) as started:
        (first, second, third) = sorted(ray.actors, key=stage_of)
        second.die()
        until(started, lambda: len(ray.actors) == 4)
        reason = str(started.omni.health().stages[1].replicas[0].reason)
        started.call(started.until_serving())
        assert reason == (
            "stage `talker` replica `0` has lost its Ray actor `f9cd` on node `10.0.0.7`, says"
            " Ray: Its worker has died."
        )
        assert ray.actors[3].options == second.options
        assert [first.is_killed, second.is_killed, third.is_killed] == [False, True, False]
        assert len(started.run().outputs) == 6


def test_a_process_that_dies_is_told_of_by_its_actor(ray: FakeRay) -> None:
    """As one of a headless start is."""
    with Started(planned(three_stages())) as started:
        for actor in ray.actors[:3]:
            (pid,) = actor.stages
            os.kill(pid, signal.SIGKILL)
        until(started, lambda: len(ray.actors) == 6)
        reasons = [str(stage.replicas[0].reason) for stage in started.omni.health().stages]
        assert all("was killed by SIGKILL" in reason for reason in reasons)
        started.call(started.until_serving())


def test_ray_that_says_nothing_of_a_death_is_not_waited_for(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica is gone all the same."""
    monkeypatch.setattr(ray_module, "ASK_S", 0.01)
    monkeypatch.setattr(ray_module, "END_S", 0.01)
    with Started(planned()) as started:
        ray.actors[0].is_silent = True
        ray.actors[0].die()
        until(started, lambda: len(ray.actors) == 2)
        reason = str(started.omni.health().stages[0].replicas[0].reason)
        assert "its host is gone, and Ray has not said why within 0.01 s" in reason


def test_an_actor_that_never_comes_fails_the_start(
    ray: FakeRay,
) -> None:
    """With what it has said itself, or what Ray says of it."""
    ray.is_deadly = True
    fails(planned(), StartupError, r"replica `0` has lost its Ray actor `f9cd` on node")
    ray.is_deadly, ray.plan = False, '{"version": 99}'
    told = "cannot be started by the stagemesh of its node: the plan has version `99`"
    fails(planned(), StartupError, told)


def test_certificates_that_are_not_there_fail_the_start(ray: FakeRay) -> None:
    """On this host before anything is started, and on a node with its name."""
    names: dict[str, Any] = {
        f"omni_tls_{name}": f"/nowhere/{name}" for name in ("cert", "key", "ca")
    }
    fails(planned(**names), DiagnosticError, "TLS cannot be set up")
    assert ray.actors == []
    assert ray.num_shutdowns == 1
    ray.plan = to_json(planned(**names))
    told = r"replica `0` could not go on: error\[RT023\]: TLS cannot be set up"
    fails(planned(), StartupError, told)


def test_no_room_fails_the_start_and_says_what_is_missing(ray: FakeRay) -> None:
    """Nothing is left reserved."""
    ray.has_room = False
    told = r"could not be started: Ray has found no room within 60 s: `CPU`: `3` wanted, `1` free"
    three = (replace(ALONE[0], replicas=3),)
    fails(planned(three), StartupError, told)


def test_a_group_that_cannot_be_waited_for_is_an_error_as_well(ray: FakeRay) -> None:
    """Ray raises whatever it likes."""
    ray.has_room = None
    fails(planned(), StartupError, "Ray does not say whether there is room: it does not exist")


def test_a_start_that_is_closed_while_it_waits_leaves_nothing(ray: FakeRay) -> None:
    """Whatever it waits for."""
    ray.hold.clear()

    async def play() -> None:
        omni = AsyncOmni(planned())
        starting = asyncio.ensure_future(omni.start())
        while not ray.groups:  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(omni.close())
        while not ray.groups[0].is_removed:  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.01)
        ray.hold.set()
        await closing
        with pytest.raises(StagemeshError):
            await starting

    asyncio.run(play())
    assert ray.actors == []
    assert ray.num_shutdowns == 1


def test_a_start_that_is_closed_while_it_joins_goes_no_further(ray: FakeRay) -> None:
    """Ray is left again."""

    async def play() -> None:
        omni = AsyncOmni(planned())
        starting = asyncio.ensure_future(omni.start())
        await asyncio.sleep(0)
        await omni.close()
        with pytest.raises(ClosedError):
            await starting

    asyncio.run(play())
    assert ray.groups == []
    assert ray.is_joined is False


def test_a_closed_cluster_starts_nothing(ray: FakeRay) -> None:
    """Also what was on its way when it was closed."""
    cluster = RayCluster(ray)
    cluster.join(None)
    cluster.close()
    with pytest.raises(ClosedError):
        cluster.reserve(NO_BUNDLES)
    cluster.leave()


def test_a_ray_that_was_joined_before_is_used_and_kept(
    ray: FakeRay, caplog: pytest.LogCaptureFixture
) -> None:
    """Even when another address was given, of which the log tells."""
    ray.is_joined = True
    for address in (None, "auto", "10.0.0.1:6379"):
        cluster = RayCluster(ray)
        assert cluster.join(address) == "127.0.0.2"
        cluster.leave()
    assert caplog.messages == []
    cluster = RayCluster(ray)
    cluster.join("10.0.0.2:6379")
    cluster.leave()
    assert caplog.messages == ["this process is in Ray's cluster at `10.0.0.1:6379` already"]
    assert (ray.is_joined, ray.inits, ray.num_shutdowns) == (True, [], 0)


def test_the_last_of_several_systems_leaves_ray(ray: FakeRay) -> None:
    """They share what the first has joined."""
    one, other = RayCluster(ray), RayCluster(ray)
    one.join("10.0.0.1:6379")
    other.join(None)
    one.leave()
    assert ray.is_joined
    other.leave()
    assert (ray.is_joined, ray.inits) == (False, [{"address": "10.0.0.1:6379"}])


@pytest.mark.usefixtures("ray")
def test_a_cluster_that_is_not_there_is_named() -> None:
    """Nothing was joined then."""
    told = "no Ray cluster at `nowhere:1` could be joined: nobody answers"
    fails(planned(ray_address="nowhere:1"), StartupError, told)
    assert ray_cluster._JOINED.num_users == 0


def test_a_token_and_an_address_that_are_given_are_taken(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's own address is not the one that others reach everywhere."""
    monkeypatch.setenv(TOKEN, "a token that is long enough")
    with Started(planned(omni_master_address="127.0.0.9")):
        (job,) = [actor.job for actor in ray.actors if actor.job is not None]
        assert job.token == b"a token that is long enough"
        assert job.master[0] == "127.0.0.9"
    monkeypatch.setenv(TOKEN, "short")
    fails(planned(), DiagnosticError, "the token has `5` characters")


def test_nothing_secret_is_logged(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is forwarded reaches the process, and no log."""
    monkeypatch.setenv("HF_TOKEN", "secret-of-the-hub")
    caplog.set_level(logging.DEBUG)
    with Started(planned()):
        ((pid,),) = [actor.stages for actor in ray.actors]
        assert "HF_TOKEN=secret-of-the-hub" in Path(f"/proc/{pid}/environ").read_text("utf-8")
    assert "secret-of-the-hub" not in caplog.text
    assert caplog.records
