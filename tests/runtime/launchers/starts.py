"""Several starts of one model on several loopback addresses of this host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from stagemesh.config.environment import TOKEN
from stagemesh.config.launch import LaunchOptions
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.transport.door import listen
from tests.runtime.started import Started
from tests.waiting import WAIT_S

ROOT = Path(__file__).parents[3]
HEAD = "127.0.0.2"
SECRET = "a token that is long enough"


def free_port() -> int:
    """A port on which nobody listens."""
    with listen(HEAD, 0) as listener:
        return int(listener.getsockname()[1])


class Worker:
    """A headless start that runs."""

    def __init__(self, plan: Plan, folder: Path, token: str) -> None:
        """Start it."""
        path = folder / f"stage-{plan.launch.stage_id}-{plan.launch.omni_replica_address}.json"
        path.write_text(to_json(plan), encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.launchers.headless", str(path)],
            cwd=ROOT,
            env={**os.environ, TOKEN: token},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self) -> tuple[int, str]:
        """Wait for its end; its exit code, and all that it printed."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out + err

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)


class Starts:
    """A head and its workers, as a context; nothing is left of them at its end."""

    def __init__(self, plan: Plan, folder: Path, **options: object) -> None:
        """Everybody shares `plan`; `options` are launch options of all of them."""
        self.port = free_port()
        self._folder = folder
        self._plan = plan
        self._options = options
        self._stack = ExitStack()
        self.workers: list[Worker] = []

    def plan_of(self, stage: int | str, **options: object) -> Plan:
        """The plan of one start."""
        at = {"omni_master_address": HEAD, "omni_master_port": self.port}
        launch = LaunchOptions(
            stage_id=stage,
            **{**at, **self._options, **options},  # type: ignore[arg-type]
        )
        return replace(self._plan, launch=launch)

    def worker(self, stage: int, address: str, *, token: str = SECRET, **options: object) -> Worker:
        """Start a headless one."""
        plan = self.plan_of(stage, headless=True, omni_replica_address=address, **options)
        worker = Worker(plan, self._folder, token)
        self.workers.append(worker)
        return worker

    def head(self, stage: int | str) -> Started:
        """Start the head, and wait for everybody."""
        return self._stack.enter_context(Started(self.plan_of(stage)))

    def codes(self) -> Sequence[int]:
        """Wait for all workers, and return how they ended."""
        return [worker.ended()[0] for worker in self.workers]

    def close_head(self) -> None:
        """End the head, as a user would."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()
            for pipe in (worker.process.stdout, worker.process.stderr):
                if pipe is not None:
                    pipe.close()
