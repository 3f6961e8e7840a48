"""A stage of several ranks on another host."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config.environment import TOKEN
from stagemesh.errors import StageFailedError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.runtime.health import ReplicaState
from stagemesh.testing.connector_conformance import open_fds
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.launchers.starts import SECRET, Starts
from tests.runtime.started import Started, wait_for_exit

pytestmark = pytest.mark.slow

SOON = RecoveryPlan(restart_delay=0.0)


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, SECRET)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, the first one first."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return sorted(int(child) for child in listed.split())


def wait_until_back(head: Started, num_restarts: int) -> None:
    """Wait until the talker has come back so often."""

    def is_back() -> bool:
        talker = head.omni.health().stages[1].replicas[0]
        return talker.state is ReplicaState.SERVING and talker.num_restarts == num_restarts

    head.call(head.until(is_back))


def test_ranks_live_and_die_together_elsewhere_too(tmp_path: Path) -> None:
    """Whichever rank it is; the replica comes back, and ends with the head."""
    before = open_fds()
    stages = [replace(stage, recovery=SOON) for stage in three_stages()]
    stages[1] = replace(stages[1], ranks=3)
    with Starts(fake_plan(stages), tmp_path) as starts:
        worker = starts.worker(1, "127.0.0.3")
        starts.worker(2, "127.0.0.4")
        head = starts.head(0)
        assert head.run().text == "hi#0hi#1hi#2"
        pids = children_of(worker.process.pid)
        assert len(pids) == 3
        os.kill(pids[1], signal.SIGKILL)
        for pid in pids:
            wait_for_exit(pid)
        wait_until_back(head, 1)
        assert head.run().text == "hi#0hi#1hi#2"
        told = r"stage `talker` replica `0` rank `2` failed: RuntimeError: the program fails"
        with pytest.raises(StageFailedError, match=told):
            head.run(params={"talker": {"fail_at": "raise", "at_rank": 2}})
        wait_until_back(head, 2)
        starts.close_head()
        assert starts.codes() == [0, 0]
    assert open_fds() == before
