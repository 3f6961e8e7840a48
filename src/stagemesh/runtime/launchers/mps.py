"""CUDA MPS on this host: the daemon through which the replicas that run here share a GPU.

It is an aid and no promise: where a daemon cannot be had the stages run without, and the log says
why. A daemon of somebody else, told by `CUDA_MPS_PIPE_DIRECTORY`, is used and never stopped; else
each GPU gets one of our own, which is stopped after the stages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stagemesh.plan.save import from_json, to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.mps_daemon import (
    PIPE,
    PROGRAM,
    MpsError,
    OwnDaemon,
    ask,
    is_attached,
)
from stagemesh.runtime.replica import ReplicaId

_log: Final = logging.getLogger(__name__)


class Mps:
    """The daemons of some replicas. All methods belong to one loop."""

    def __init__(self, plan: Plan, replicas: Sequence[ReplicaId]) -> None:
        """Start nothing yet."""
        self._ids = plan.devices.ids
        self._program = ""
        self._devices: dict[ReplicaId, int] = {}
        self._wishes: dict[int, str | None] = {}
        self._directories: dict[int, str] = {}
        self._own: dict[int, OwnDaemon] = {}
        self._checks: set[asyncio.Task[None]] = set()
        for where in replicas:
            stage = plan.stage(where.stage)
            mps = stage.setup.mps
            if mps is not None and mps.off_because is None:
                device = stage.replicas[where.replica].ranks[0].device
                self._devices[where] = device
                # The plan has seen to it that all on a device want the same.
                self._wishes.setdefault(device, mps.pipe_directories[where.replica])

    async def open(self) -> None:
        """Have a daemon for every GPU that is to have one, or say why it has none."""
        if not self._wishes:
            return
        program = shutil.which(PROGRAM)
        if program is None:
            _log.warning("CUDA MPS is off: `%s` is not installed", PROGRAM)
            return
        self._program = program
        async with asyncio.TaskGroup() as group:
            for device, wish in self._wishes.items():
                group.create_task(self._open(device, wish))

    def directory(self, where: ReplicaId) -> str | None:
        """Where a replica finds its daemon; empty where it is to find none, `None` for no word."""
        device = self._devices.get(where)
        return None if device is None else self._directories.get(device, "")

    def seen(self, where: ReplicaId, saved_plan: str) -> str:
        """Return the plan with a replica's device called as its daemon calls it.

        One of our own shows its clients a single GPU, the first.
        """
        device = self._devices.get(where)
        is_shown = device in self._own and device in self._directories
        if device is None or not is_shown or not self._ids:
            return saved_plan
        plan = from_json(saved_plan)
        assert isinstance(plan, Plan), "it was saved by this process"
        ids = plan.devices.ids
        seen = (*ids[:device], "0", *ids[device + 1 :])
        return to_json(replace(plan, devices=replace(plan.devices, ids=seen)))

    def ready(self, where: ReplicaId, name: str, pid: int) -> None:
        """A replica has loaded: see whether its daemon knows it."""
        directory = self.directory(where)
        if directory:
            check = asyncio.get_running_loop().create_task(self._check(name, pid, directory))
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)

    async def close(self) -> None:
        """Stop our own; calling it again does nothing."""
        checks = list(self._checks)
        for check in checks:
            check.cancel()
        own, self._own = list(self._own.values()), {}
        try:
            await asyncio.gather(*checks, return_exceptions=True)
        finally:
            await asyncio.gather(*(daemon.stop() for daemon in own))

    async def _open(self, device: int, wish: str | None) -> None:
        theirs = os.environ.get(PIPE) if wish is None else wish
        try:
            if theirs:
                await ask(self._program, theirs, "get_server_list")
                self._directories[device] = theirs
            else:
                await self._start(device)
        except MpsError as error:
            _log.warning("CUDA MPS is off on device `%d`: %s", device, error)

    async def _start(self, device: int) -> None:
        try:
            daemon = OwnDaemon(self._program, self._ids[device] if self._ids else None)
        except OSError as error:
            raise MpsError(f"the daemon cannot be started: {error}") from error
        self._own[device] = daemon
        try:
            await daemon.answers()
        except MpsError:
            del self._own[device]
            await daemon.stop()
            raise
        self._directories[device] = daemon.directory
        daemon.exited.add_done_callback(lambda _exited: self._over(device))

    def _over(self, device: int) -> None:
        """A daemon has ended: if nobody has asked it to, who comes from now on runs without."""
        if device in self._own:
            del self._directories[device]
            _log.warning(
                "CUDA MPS is off on device `%d`: its daemon has ended; stages that were attached"
                " fail, and come back without",
                device,
            )

    async def _check(self, name: str, pid: int, directory: str) -> None:
        try:
            if not await is_attached(self._program, directory, pid):
                _log.warning(
                    "%s, process `%d`, is not attached to the MPS daemon at `%s`: it takes turns"
                    " with the others on its device",
                    name,
                    pid,
                    directory,
                )
        except MpsError as error:
            _log.warning("%s may not be attached to its MPS daemon: %s", name, error)
