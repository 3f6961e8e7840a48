"""What the launcher calls of Ray, in this process: an actor is a thread that does the work."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stagemesh.runtime.launchers import choose
from stagemesh.runtime.launchers.ray_actor import StageActor
from stagemesh.runtime.launchers.ray_jobs import Job, RankJob, decode, encode
from stagemesh.testing.connector_conformance import open_fds

ROOT = Path(__file__).parents[3]
DEATH = """The actor died unexpectedly before finishing this task.
\tclass_name: StageActor
\tactor_id: f9cd
\tip: 10.0.0.7
Its worker has died."""


class FakeDeath(Exception):  # noqa: N818  as Ray names its own
    """An actor is no more."""


class FakeGroup:
    """A placement group."""

    def __init__(self, bundles: Sequence[Mapping[str, float]], ray: FakeRay) -> None:
        """Of that Ray."""
        self.bundles = bundles
        self.is_removed = False
        self._ray = ray

    def wait(self, _timeout: float) -> bool:
        """Say whether it is there."""
        self._ray.hold.wait()
        if self.is_removed or self._ray.has_room is None:
            raise Exception("it does not exist")  # noqa: TRY002  as Ray does
        return self._ray.has_room


class FakeActor:
    """An actor, which is also its method, and what that returns."""

    def __init__(self, options: Mapping[str, Any], ray: FakeRay) -> None:
        """It does nothing yet."""
        self.options = options
        self._ray = ray
        self.serve = self
        self.job: Job | RankJob | None = None
        self.is_killed = False
        self.is_silent = False
        self._process: subprocess.Popen[bytes] | None = None
        self._result: Future[str | None] = Future()

    def remote(self, data: bytes) -> FakeActor:
        """Begin to work."""
        self.job = decode(data)
        number = self.options["scheduling_strategy"]["placement_group_bundle_index"]
        if self._ray.plan is not None and number == self._ray.bad_bundle:
            data = encode(msgspec.structs.replace(self.job, plan=self._ray.plan))
        nodes = self._ray.nodes_of_bundles
        address = nodes[number % len(nodes)]
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.launchers.fake_actor", address],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self._ray.is_deadly and number == self._ray.bad_bundle:
            process.kill()
        self._thread = threading.Thread(target=self._attend, args=(process, data))
        self._thread.start()
        return self

    def future(self) -> Future[str | None]:
        """Return what the work comes to."""
        return self._result

    @property
    def stages(self) -> set[int]:
        """The processes that it keeps."""
        assert self._process is not None
        pid = self._process.pid
        path = Path(f"/proc/{pid}/task/{pid}/children")
        return {int(child) for child in path.read_text(encoding="ascii").split()}

    def join(self) -> None:
        """Wait until nothing is left of it."""
        self._thread.join()

    def die(self) -> None:
        """End without a word."""
        assert self._process is not None
        self._process.kill()

    def _attend(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        told, _ = process.communicate(data)
        if process.returncode == 0:
            self._result.set_result(msgspec.json.decode(told, type=str | None))
        elif not self.is_silent:
            self._result.set_exception(FakeDeath(DEATH))


class FakeRay:
    """The module `ray`."""

    def __init__(self) -> None:
        """Of one node, with room, which this process has not joined."""
        self.is_joined = False
        self.has_room: bool | None = True
        self.is_deadly = False
        self.plan: str | None = None
        self.bad_bundle = 0
        self.nodes_of_bundles: tuple[str, ...] = ("127.0.0.3",)
        self.hold = threading.Event()
        self.hold.set()
        self.inits: list[Mapping[str, object]] = []
        self.num_shutdowns = 0
        self.actors: list[FakeActor] = []
        self.groups: list[FakeGroup] = []
        self.util = SimpleNamespace(
            get_node_ip_address=lambda: "127.0.0.2",
            placement_group=self._group,
            remove_placement_group=self._remove,
            scheduling_strategies=SimpleNamespace(PlacementGroupSchedulingStrategy=dict),
        )

    def is_initialized(self) -> bool:
        """Whether this process is in a cluster."""
        return self.is_joined

    def init(self, **options: object) -> None:
        """Join one."""
        assert options.pop("logging_level") == logging.ERROR
        assert options.pop("log_to_driver") is False
        if options.get("address") == "nowhere:1":
            raise ConnectionError("nobody answers")
        self.inits.append(options)
        self.is_joined = True

    def shutdown(self) -> None:
        """Leave it."""
        assert self.is_joined
        self.is_joined = False
        self.num_shutdowns += 1

    def get_runtime_context(self) -> SimpleNamespace:
        """Say where this process is."""
        return SimpleNamespace(gcs_address="10.0.0.1:6379")

    def nodes(self) -> list[dict[str, object]]:
        """The nodes, one of them dead."""
        return [
            {"Alive": True, "Resources": {"CPU": 2.0, "memory": 5.0}},
            {"Alive": False, "Resources": {"CPU": 64.0}},
        ]

    def available_resources(self) -> dict[str, float]:
        """What nobody has taken."""
        return {"CPU": 1.0}

    def remote(self, kind: type) -> SimpleNamespace:
        """Make an actor's class."""
        assert kind is StageActor

        def options(**options: object) -> SimpleNamespace:
            def create() -> FakeActor:
                actor = FakeActor(options, self)
                self.actors.append(actor)
                return actor

            return SimpleNamespace(remote=create)

        return SimpleNamespace(options=options)

    def kill(self, actor: FakeActor) -> None:
        """End an actor."""
        actor.is_killed = True
        actor.die()

    def _group(self, bundles: Sequence[Mapping[str, float]], *, strategy: str) -> FakeGroup:
        assert strategy == "PACK"
        group = FakeGroup(bundles, self)
        self.groups.append(group)
        return group

    def _remove(self, group: FakeGroup) -> None:
        group.is_removed = True


@contextmanager
def installed(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """Have launchers find `fake`; afterwards nothing of what was done in it is left."""
    monkeypatch.setattr(choose, "load_ray", lambda: fake)
    before = open_fds()
    yield fake
    assert all(group.is_removed for group in fake.groups)
    for actor in fake.actors:
        assert actor.is_killed
        actor.join()
    assert open_fds() == before
