"""A stage of the real pipeline that dies is named, and nothing is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from stagemesh import Omni, StageProgress
from stagemesh.errors import StageFailedError
from stagemesh.runtime.outputs import StageState
from stagemesh.runtime.supervisor import ReplicaId
from tests.e2e import leaks

pytestmark = pytest.mark.slow

TWO: Final = [{"axis": "stage_replica", "size": 2}]
STRATEGY: Final = {"strategies": {"thinker": TWO, "talker": TWO}}
"""When the first of them has died, the next request reaches the stages behind."""
LONG: Final = {"thinker": {"max_tokens": 400, "ignore_eos": True}}


def killed_at(omni: Omni, stage: str) -> StageFailedError:
    """Kill the replica that has begun to serve a request; return how the request failed."""
    [stage_id] = [planned.stage_id for planned in omni.plan.stages if planned.name == stage]
    killed: list[int] = []

    def kill(news: StageProgress) -> None:
        if (news.stage, news.state) == (stage, StageState.RUNNING) and not killed:
            killed.append(omni.pids[ReplicaId(stage=stage_id, replica=news.replica)])
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(StageFailedError) as caught:
        omni.generate("Tell me a long story.", sampling_params=LONG, on_progress=kill)
    assert killed
    assert killed[0] not in omni.pids.values()
    return caught.value


def test_the_death_of_a_stage_fails_its_request_and_names_it(voice_chat: Path) -> None:
    """SIGKILL in the middle of a request, in each stage in turn: an error that names the stage."""
    memory = leaks.shared_memory()
    with Omni(str(voice_chat), strategy_config=STRATEGY) as omni:
        pids = omni.pids
        for stage in ("thinker", "talker", "code2wav"):
            assert killed_at(omni, stage).stage == stage
    assert len(pids) == 5
    assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]
    assert leaks.shared_memory() <= memory
