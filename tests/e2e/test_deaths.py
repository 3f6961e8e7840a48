"""A stage of the real pipeline that dies is named, and fails nobody but its own requests."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from stagemesh.errors import StageFailedError
from stagemesh.plan.values import Plan
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import StageProgress, StageState
from stagemesh.runtime.params import SamplingParams
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import OnProgress
from tests.e2e import leaks
from tests.runtime.hunting import Bond, Hunter, Traffic
from tests.runtime.leaks import host, wait_until_as
from tests.runtime.started import Started

pytestmark = pytest.mark.slow

DEPLOY: Final = """\
base_config: voice_chat.yaml
stages:
  - {stage_id: 0, dtype: float32}
  - {stage_id: 2, max_restarts: 1000, restart_delay: 0}
"""
"""Greedy, all in float32; the last stage may be started again as often as it dies."""
MOST_ERROR: Final = 1e-4
"""By how much samples may differ, for the company that a request was computed in."""
NUM_STRIKES: Final = 9
"""Kills of the long form."""
NUM_STREAMS: Final = 4
"""Questions that are asked at any time."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the seed of the voice that answers it."""

    prompt: str
    seed: int

    @property
    def params(self) -> SamplingParams:
        """What the stages are told."""
        return {"thinker": {"max_tokens": 24}, "talker": {"seed": self.seed}}


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said, and the waveform."""

    words: str
    sound: np.ndarray[tuple[int], np.dtype[np.float32]]


QUESTIONS: Final = (
    Question("Why is the sky blue?", 0),
    Question("What is the capital of France?", 1),
    Question("What do bees make?", 2),
    Question("Name three colors.", 3),
    Question("What do plants need to grow?", 4),
)


def planned(voice_chat: Path, folder: Path, **replicas: int) -> Plan:
    """Plan the pipeline with replicas of some stages."""
    deploy = folder / "deploy.yaml"
    deploy.write_text(DEPLOY, encoding="ascii")
    strategies = {
        stage: [{"axis": "stage_replica", "size": number}] for stage, number in replicas.items()
    }
    strategy = {"strategies": strategies}
    return AsyncOmni(str(voice_chat), deploy_config=deploy, strategy_config=strategy).plan


async def ask(
    started: Started, question: Question, on_progress: OnProgress | None = None
) -> Answer:
    """Ask one question; whoever hears of its progress is told of outputs, too."""
    words, pieces = "", []
    outputs = started.omni.generate(
        question.prompt, sampling_params=question.params, on_progress=on_progress
    )
    async for output in outputs:
        if isinstance(on_progress, Bond):
            on_progress.has_output = True
        words += output.text or ""
        if output.audio is not None:
            pieces.append(np.frombuffer(output.audio.samples, np.float32))
    return Answer(words, np.concatenate(pieces))


def check(answer: Answer, whole: Answer) -> None:
    """It is what it was without faults: the same words, the same sound."""
    assert answer.words == whole.words
    assert answer.sound.shape == whole.sound.shape
    assert np.abs(answer.sound - whole.sound).max() <= MOST_ERROR


async def killed_at(started: Started, stage: str, whole: Answer | None) -> StageFailedError:
    """Kill the replica that has begun to serve a request; return how the request failed.

    Where there is another replica, the same question is answered there meanwhile, as a `whole`.
    """
    [stage_id] = [each.stage_id for each in started.omni.plan.stages if each.name == stage]
    killed: list[int] = []

    def kill(news: StageProgress) -> None:
        if (news.stage, news.state) == (stage, StageState.RUNNING) and not killed:
            killed.append(started.omni.pids[ReplicaId(stage=stage_id, replica=news.replica)])
            os.kill(killed[0], signal.SIGKILL)

    doomed = asyncio.ensure_future(ask(started, QUESTIONS[0], kill))
    await asyncio.sleep(0)  # it is bound now, and the next request goes to another replica
    other = ask(started, QUESTIONS[0]) if whole is not None else asyncio.sleep(0)
    error, answer = await asyncio.gather(doomed, other, return_exceptions=True)
    assert killed
    assert killed[0] not in started.omni.pids.values()
    assert isinstance(error, StageFailedError)
    if whole is not None:
        assert isinstance(answer, Answer), answer
        check(answer, whole)
    return error


def test_the_death_of_a_stage_fails_its_request_and_names_it(
    voice_chat: Path, tmp_path: Path
) -> None:
    """SIGKILL in the middle of a request, in each stage in turn: an error that names the stage."""
    memory = leaks.shared_memory()
    with Started(planned(voice_chat, tmp_path, talker=2, code2wav=2)) as started:
        pids = started.omni.pids
        whole = started.call(ask(started, QUESTIONS[0]))
        for stage in ("code2wav", "talker", "thinker"):
            spared = None if stage == "thinker" else whole
            assert started.call(killed_at(started, stage, spared)).stage == stage
    assert len(pids) == 5
    assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]
    assert leaks.shared_memory() <= memory


@pytest.mark.nightly
def test_deaths_under_load_change_no_answer_but_those_that_they_end(
    voice_chat: Path, tmp_path: Path
) -> None:
    """One of three replicas is killed again and again, while four questions are asked."""
    plan, before = planned(voice_chat, tmp_path, code2wav=3), host()
    with Started(plan) as started:
        whole = {question: started.call(ask(started, question)) for question in QUESTIONS}

        async def stream(rng: random.Random, bond: Bond) -> bool:
            question = rng.choice(QUESTIONS)
            check(await ask(started, question, bond), whole[question])
            return True

        hunter = Hunter(started, "code2wav")
        traffic = Traffic(hunter, [stream] * NUM_STREAMS)
        started.call(traffic.under_fire(NUM_STRIKES), wait_s=None)
        assert len(hunter.killed) == NUM_STRIKES
        assert traffic.num_hit
    wait_until_as(before)
