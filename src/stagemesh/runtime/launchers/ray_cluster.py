"""A Ray cluster as a launcher needs it: room for replicas, actors in it, and why one has ended.

This is the only place that calls Ray. All calls may block, so they are made on threads; once the
cluster is closed none of them leaves anything behind. A Ray that this process had joined before is
used and stays as it is; one that was joined here is left when nobody uses it any more.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Final

from stagemesh.errors import ClosedError, StartupError
from stagemesh.runtime.launchers.ray_actor import StageActor
from stagemesh.runtime.launchers.ray_bundles import Request, Share, missing
from stagemesh.spec.frozen import frozen

RESERVE_S: Final = 60
"""How long Ray may take to find room."""
_WORDS: Final = 240
"""Most characters of what Ray says of a death; whole sentences where they fit."""
_log: Final = logging.getLogger(__name__)
_FIELD: Final = re.compile(r"^\s*(actor_id|ip): (\S+)$", re.MULTILINE)


class RayRoom:
    """A placement group."""

    __slots__ = ("handle",)

    def __init__(self, handle: Any) -> None:  # noqa: ANN401  Ray is a module without types here
        """Take what Ray knows it by."""
        self.handle = handle


@frozen
class RayActor:
    """An actor at work."""

    handle: Any
    """What Ray knows it by."""
    done: Future[str | None]
    """What its work came to, or Ray's error when it could not go on."""


class _Joined:
    """Whether this process is in a cluster because of us, and for how many."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.num_users = 0
        self.is_ours = False


_JOINED: Final = _Joined()


class RayCluster:
    """What one launcher has in a cluster. Methods may be called from any thread."""

    def __init__(self, ray: Any) -> None:  # noqa: ANN401  see above
        """`ray` is the module; nothing is called yet."""
        self._ray = ray
        self._lock = threading.Lock()
        self._is_closed = False
        self._rooms: list[RayRoom] = []
        self._actors: list[RayActor] = []

    def join(self, address: str | None) -> str:
        """Join the cluster; return this node's address as the others see it.

        Without an address Ray looks for one itself, first in `RAY_ADDRESS`. Raises `StartupError`.
        """
        at = "" if address is None else f" at `{address}`"
        with _JOINED.lock, _told(f"no Ray cluster{at} could be joined"):
            if not self._ray.is_initialized():
                where = {} if address is None else {"address": address}
                self._ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
                _JOINED.is_ours = True
            elif address is not None:
                joined = self._ray.get_runtime_context().gcs_address
                if address not in ("auto", joined):
                    _log.warning("this process is in Ray's cluster at `%s` already", joined)
            node = str(self._ray.util.get_node_ip_address())
            _JOINED.num_users += 1
        return node

    def leave(self) -> None:
        """Not to be used after that; Ray is left when it was joined here and by nobody else."""
        with _JOINED.lock:
            _JOINED.num_users -= 1
            if _JOINED.is_ours and _JOINED.num_users == 0:
                _JOINED.is_ours = False
                self._ray.shutdown()

    def reserve(self, request: Request) -> RayRoom:
        """Wait for room; raises `StartupError` naming what is missing when there is none."""
        groups = self._ray.util
        with self._open(), _told("Ray does not reserve room"):
            bundles = [dict(bundle) for bundle in request.bundles]
            room = RayRoom(groups.placement_group(bundles, strategy="PACK"))
            self._rooms.append(room)
        with _told("Ray does not say whether there is room"):
            is_there = room.handle.wait(RESERVE_S)
        if is_there:
            return room
        free = self._ray.available_resources()
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        lacks = "; ".join(missing(request.bundles, free, nodes))
        with self._open():
            self._rooms.remove(room)
        groups.remove_placement_group(room.handle)
        raise StartupError(f"Ray has found no room within {RESERVE_S} s: {lacks}")

    def launch(self, room: RayRoom, share: Share, job: bytes) -> RayActor:
        """Start an actor in its bundle, and put it to work."""
        strategies = self._ray.util.scheduling_strategies
        with self._open(), _told("Ray starts no actor"):
            handle = (
                self._ray.remote(StageActor)
                .options(
                    num_cpus=share.cpus,
                    num_gpus=share.gpus,
                    max_restarts=0,
                    scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(
                        placement_group=room.handle,
                        placement_group_bundle_index=share.bundle,
                    ),
                )
                .remote()
            )
            actor = RayActor(handle=handle, done=handle.serve.remote(job).future())
            self._actors.append(actor)
        return actor

    def end(self, actor: RayActor) -> None:
        """End an actor, whatever it does."""
        with self._lock:
            if actor in self._actors:
                self._actors.remove(actor)
                self._ray.kill(actor.handle)

    def close(self) -> None:
        """End all actors and give all room back; nothing can be started any more."""
        with self._lock:
            self._is_closed = True
            for actor in self._actors:
                self._ray.kill(actor.handle)
            for room in self._rooms:
                self._ray.util.remove_placement_group(room.handle)
            self._actors.clear()
            self._rooms.clear()

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the system was closed")
            yield


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the edge to foreign code, which raises `Exception` itself
        raise StartupError(f"{what}: {error}") from error


def load_ray() -> Any:  # noqa: ANN401  see above
    """Return the module; raises `StartupError` naming what installs it."""
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
    except ImportError as error:
        raise StartupError(
            "`--worker-backend ray` and `distributed_executor_backend: ray` need Ray:"
            f" `pip install 'stagemesh[ray]'` ({error})"
        ) from error
    return ray


def cause(error: BaseException) -> str:
    """Say in one line which actor Ray has lost, where, and what it knows about that."""
    text = str(error)
    fields = dict(_FIELD.findall(text))
    who = f"its Ray actor `{fields['actor_id']}`" if "actor_id" in fields else "its Ray actor"
    where = f" on node `{fields['ip']}`" if "ip" in fields else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    words = lines[-1] if lines else type(error).__name__
    if len(words) > _WORDS:
        sentences, _, rest = words[:_WORDS].rpartition(". ")
        words = f"{sentences or rest} ..."
    return f"has lost {who}{where}, says Ray: {words}"
