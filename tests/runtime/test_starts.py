"""Starts that fail, and ends of the whole system however they come about."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import (
    ClosedError,
    DiagnosticError,
    PromptsError,
    StartupError,
)
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.omni import AsyncOmni, Omni
from stagemesh.testing.connector_conformance import open_fds
from stagemesh.testing.fake_plan import FakeStage, fake_plan, three_stages
from tests.runtime.started import wait_for_exit
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run with it ignored
import json, sys
from pathlib import Path
from stagemesh.plan.save import from_json
from stagemesh.runtime.omni import Omni

plan = from_json(Path(sys.argv[1]).read_text())
omni = Omni(plan)
print(json.dumps(list(omni.pids.values())), flush=True)
{then}
"""
STALLED = 'omni.generate(["hi"], sampling_params={"talker": {"fail_at": "stall"}})'


@contextmanager
def running(
    plan: Plan, then: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A Python process that runs `plan` and then does `then`, with the pids of its stages."""
    (folder / "plan.json").write_text(to_json(plan))
    script = SCRIPT.replace("{then}", then)
    command = [sys.executable, "-c", script, str(folder / "plan.json")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate(timeout=WAIT_S)[1]
            yield process, json.loads(line)
        finally:
            process.kill()


def children() -> set[int]:
    """Processes that this one has started and not reaped."""
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found


def test_a_stage_that_cannot_load_stops_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """The error names the stage and the reason, the log has the traceback; all others are gone."""
    before, fds = children(), open_fds()
    caplog.set_level(logging.INFO, logger="stagemesh")
    thinker, talker, vocoder = three_stages()
    broken = replace(talker, args={"fail_at": "load"})
    told = "stage `talker` replica `0` failed: RuntimeError"
    with pytest.raises(StartupError, match=told) as caught:
        Omni(fake_plan([thinker, broken, vocoder]))
    assert caught.value.stage == "talker"
    assert "Traceback" not in str(caught.value)
    assert "Traceback" in caplog.text
    assert children() == before
    assert open_fds() == fds


def test_a_start_that_takes_too_long_names_who_is_missing() -> None:
    """At the deadline every stage that is not ready is listed, and all are gone."""
    before, fds = children(), open_fds()
    omni = AsyncOmni(fake_plan(three_stages()))
    with pytest.raises(StartupError, match=r"not ready after 0\.01 s: stage `thinker` replica `0`"):
        asyncio.run(omni.start(timeout_s=0.01))
    assert children() == before
    assert open_fds() == fds


def test_a_start_has_as_long_as_its_plan_says() -> None:
    """`--init-timeout` is in effect."""
    # no time at all is refused before anything starts, which shows whose time counts
    plan = replace(fake_plan(three_stages()), launch=LaunchOptions(init_timeout=0))
    with pytest.raises(DiagnosticError, match="RT007"):
        asyncio.run(AsyncOmni(plan).start())


@pytest.mark.parametrize("engine", ["fake", "generation"])
def test_ranks_that_the_engine_cannot_use_are_refused(engine: str) -> None:
    """Nothing runs on more ranks than know what to do, or on fewer than were planned."""
    plan = fake_plan([FakeStage(name="only", final="text", engine=engine, ranks=2)])
    (stage,) = plan.stages
    if engine == "fake":
        stage = replace(stage, axes=(replace(stage.axes[0], axis="sp_ring"),))
    with pytest.raises(StartupError, match="needs `2` ranks") as caught:
        Omni(replace(plan, stages=(stage,)))
    assert caught.value.stage == "only"


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    """Cancelling the start stops what had been started."""
    before = children()

    async def run() -> None:
        omni = AsyncOmni(fake_plan(three_stages()))
        start = asyncio.ensure_future(omni.start())
        await asyncio.sleep(0)
        assert children() > before
        start.cancel()
        await asyncio.wait([start], timeout=WAIT_S)
        assert start.cancelled()

    asyncio.run(run())
    assert children() == before


def test_the_synchronous_front_door_runs_and_closes() -> None:
    """`Omni` gives results in order, closes twice without harm, and refuses work afterwards."""
    before, fds = children(), open_fds()
    with Omni(fake_plan(three_stages())) as omni:
        results = omni.generate(["a", "b"])
        assert [result.text for result in results] == ["a#0a#1a#2", "b#0b#1b#2"]
        assert [result.text for result in omni.generate("c")] == ["c#0c#1c#2"]
    omni.close()
    with pytest.raises(ClosedError):
        omni.generate("d")
    assert children() == before
    assert open_fds() == fds


def test_a_prompt_that_fails_leaves_the_others_their_results() -> None:
    """Of several prompts every result is kept in its place; a single one raises its own error."""
    with Omni(fake_plan(three_stages())) as omni:
        with pytest.raises(PromptsError) as caught:
            omni.generate(["a", "", "b"])
        with pytest.raises(DiagnosticError, match="RT004"):
            omni.generate([""])
    error = caught.value
    assert [result and result.text for result in error.results] == ["a#0a#1a#2", None, "b#0b#1b#2"]
    assert list(error.failures) == [1]
    assert isinstance(error.failures[1], DiagnosticError)
    first, *lines = str(error).splitlines()
    assert (error.code, first) == ("RT026", "1 of 3 prompts failed")
    assert lines[0].startswith("prompt 1: error[RT004]: the prompt is empty")
    assert error.help is not None
    assert "`results`" in error.help


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    """SIGINT during a request raises `KeyboardInterrupt`, and no process is left."""
    with running(fake_plan(three_stages()), STALLED, tmp_path) as (process, pids):
        assert len(pids) == 3
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
        assert err.rstrip().endswith("KeyboardInterrupt")
        # Of the signal, unless some thread compiles a text meanwhile: CPython forgets it then.
        assert process.returncode in (-signal.SIGINT, 1)
        for pid in pids:
            wait_for_exit(pid)


def test_the_death_of_the_caller_ends_the_stages(tmp_path: Path) -> None:
    """When the process that started them is killed, the stages end by themselves."""
    with running(fake_plan(three_stages()), STALLED, tmp_path) as (process, pids):
        process.kill()
        for pid in pids:
            wait_for_exit(pid)


@pytest.mark.parametrize("then", ["", "omni = None"], ids=["exit", "forgotten"])
def test_a_script_that_forgets_to_close_leaves_nothing(tmp_path: Path, then: str) -> None:
    """The end of the interpreter, or of the object, closes the system without a word."""
    plan = fake_plan([FakeStage(name="only", final="text")])
    with running(plan, then, tmp_path) as (process, pids):
        _, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, err) == (0, "")
        for pid in pids:
            wait_for_exit(pid)
