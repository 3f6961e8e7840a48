"""Stages that share GPUs through CUDA MPS daemons: ours, those of others, and none."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stagemesh.config.environment import TOKEN
from stagemesh.errors import StartupError
from stagemesh.plan.save import to_json
from stagemesh.runtime.launchers import mps_daemon
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.replica import ReplicaId
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.launchers.gpus import NAME, PIPE, Gpus, environment_of, on_gpus, pipes, sharing
from tests.runtime.launchers.stand_ins import MPS_CONTROL, install
from tests.runtime.launchers.starts import SECRET, Starts
from tests.runtime.leaks import host
from tests.runtime.started import POLL_S, Started, wait_for_exit
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

TEXT = "hi#0hi#1hi#2"


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Two GPUs, numbers 4 and 5, of which nobody has said anything."""
    runtime = tmp_path / "run"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.delenv(PIPE, raising=False)
    program = install(tmp_path, NAME, MPS_CONTROL, monkeypatch)
    return Gpus(program=program, runtime=runtime)


def test_each_gpu_that_is_shared_has_a_daemon_of_ours(
    gpus: Gpus, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients are attached, only they know of it, and it goes when they have gone."""
    before = host()
    plan = on_gpus(
        fake_plan(three_stages()),
        {"thinker": 1, "talker": 1, "vocoder": 0},
        {"thinker": None, "talker": None, "vocoder": None},
    )
    with Started(plan) as started:
        assert started.run().text == TEXT
        first, second = sorted(gpus.daemons, key=lambda daemon: daemon.visible)
        assert (first.visible, second.visible) == ("4", "5")
        assert pipes(started) == [second.pipe, second.pipe, first.pipe]
        folders = sorted(gpus.runtime.iterdir())
        assert [str(each / "pipe") for each in folders] == sorted([first.pipe, second.pipe])
        for folder in folders:
            assert (folder / "log" / "control.log").exists()
            opened = [stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.iterdir())]
            assert opened == [0o700] * 3
    assert caplog.records == []
    assert len(gpus.daemons) == 2
    assert gpus.is_clean()
    assert host() == before


def test_a_client_finds_its_gpu_as_the_first(
    gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon of ours shows its clients nothing else; where there is none, numbers stay."""
    record = tmp_path / "child"
    monkeypatch.setenv("TEST_RECORD", str(record))
    plan = sharing(bridge="tests.runtime.plugins:spawning_bridge")
    for way, seen in (("", "0"), ("refuse", "5")):
        gpus.behave(way)
        with Started(plan) as started:
            started.run()
            numbers = environment_of(int(record.read_text()))["CUDA_VISIBLE_DEVICES"]
            # both edges have the bridge: the last child is of the talker, or of the thinker
            assert numbers == seen


@pytest.mark.parametrize("way", ["missing", "refuse", "deaf", "hang"])
def test_without_a_daemon_stages_run_all_the_same(
    gpus: Gpus, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says why; no stage is led to a daemon that is not there."""
    if way == "hang":
        monkeypatch.setattr(mps_daemon, "_ANSWER_S", 0.5)
    if way in ("deaf", "hang"):
        monkeypatch.setattr(mps_daemon, "_START_S", 0.2)
    told = {
        "missing": f"CUDA MPS is off: `{NAME}` is not installed",
        "refuse": "CUDA MPS is off on device `1`: the daemon has ended: no GPU here",
        "deaf": "/pipe` does not answer: ",
        "hang": "has not answered within 0.5 s",
    }
    before = host()
    gpus.behave(way)
    if way == "missing":
        gpus.program.unlink()
    with Started(sharing()) as started:
        assert pipes(started) == [None, None, None]
        assert started.run().text == TEXT
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert told[way] in record.getMessage()
    assert gpus.is_clean()
    assert host() == before


@pytest.mark.parametrize("is_said", [False, True], ids=["by the parent", "by the stage"])
def test_a_daemon_of_others_is_used_and_left(
    gpus: Gpus,
    is_said: bool,  # noqa: FBT001  which one says it
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is theirs: it is asked, and no other is started."""
    with gpus.others() as theirs:
        if is_said:
            monkeypatch.setenv(PIPE, "/somewhere/else")
        else:
            monkeypatch.setenv(PIPE, theirs.pipe)
        said = theirs.pipe if is_said else None
        with Started(sharing(said, said)) as started:
            assert pipes(started)[:2] == [theirs.pipe, theirs.pipe]
            assert os.environ[PIPE] == ("/somewhere/else" if is_said else theirs.pipe)
            assert started.run().text == TEXT
        assert gpus.daemons == [theirs]
    assert caplog.records == []


def test_a_stage_may_want_one_of_our_own_in_any_case(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty word takes back that of the parent."""
    monkeypatch.setenv(PIPE, "/somewhere/else")
    with Started(sharing("", "")) as started:
        [ours] = gpus.daemons
        assert pipes(started) == [ours.pipe, ours.pipe, "/somewhere/else"]
    assert gpus.is_clean()


@pytest.mark.parametrize("is_said", [False, True], ids=["by the parent", "by the stage"])
def test_a_daemon_of_others_that_is_not_there_is_done_without(
    gpus: Gpus,
    is_said: bool,  # noqa: FBT001  which one says it
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody asked for one of ours in its place."""
    monkeypatch.setenv(PIPE, "/nowhere")
    said = "/nowhere" if is_said else None
    with Started(sharing(said, said)) as started:
        assert pipes(started) == [None, None, "/nowhere"]
        assert started.run().text == TEXT
    [record] = caplog.records
    assert record.getMessage() == (
        "CUDA MPS is off on device `1`: the daemon at `/nowhere` does not answer: Cannot find MPS"
        " control daemon process"
    )
    assert gpus.daemons == []


def test_who_is_not_attached_is_told_of(gpus: Gpus, caplog: pytest.LogCaptureFixture) -> None:
    """It would take turns with the others, and nobody would know why it is slow."""
    gpus.behave("unattached")
    with Started(sharing()) as started:
        [ours] = gpus.daemons
        told = {
            f"stage `{name}` replica `0`, process `{started.pid(stage)}`, is not attached to the"
            f" MPS daemon at `{ours.pipe}`: it takes turns with the others on its device"
            for stage, name in enumerate(("thinker", "talker"))
        }
        started.call(started.until(lambda: {each.getMessage() for each in caplog.records} == told))


def test_a_start_that_fails_stops_what_it_has_started(gpus: Gpus) -> None:
    """As one that is cancelled does, wherever it was."""
    before = host()
    with pytest.raises(StartupError, match="stage `talker` replica `0` failed"):
        Started(sharing(args={"fail_at": "load"})).__enter__()
    assert len(gpus.daemons) == 1
    assert gpus.is_clean()
    assert host() == before


@pytest.mark.parametrize("way", ["", "hang"])
def test_a_start_that_is_cancelled_stops_the_daemon(gpus: Gpus, way: str) -> None:
    """Also while the daemon is asked for the first time."""
    gpus.behave(way)
    before = host()

    async def run() -> None:
        omni = AsyncOmni(sharing())
        start = asyncio.ensure_future(omni.start())
        while not gpus.daemons:  # noqa: ASYNC110  a file tells
            await asyncio.sleep(0.01)
        start.cancel()
        await asyncio.wait([start], timeout=WAIT_S)
        assert start.cancelled()

    asyncio.run(run())
    assert gpus.is_clean()
    assert host() == before


@pytest.mark.nightly
@pytest.mark.parametrize("whom", ["keeper", "daemon"])
def test_a_daemon_that_dies_is_done_without(
    gpus: Gpus, whom: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All of it goes; a stage that comes back then runs without, and sees its GPU again."""
    with Started(sharing()) as started:
        [ours] = gpus.daemons
        os.kill(ours.parent if whom == "keeper" else ours.own, signal.SIGKILL)
        started.call(started.until(lambda: bool(caplog.records)))
        [record] = caplog.records
        assert "CUDA MPS is off on device `1`: its daemon has ended" in record.getMessage()
        talker = started.pid(1)
        os.kill(talker, signal.SIGKILL)
        again = ReplicaId(stage=1, replica=0)
        started.call(started.until(lambda: started.omni.pids.get(again, talker) != talker))
        started.call(started.until_serving())
        assert pipes(started) == [ours.pipe, None, None]
        assert started.run().text == TEXT
    assert gpus.is_clean()


@pytest.mark.nightly
def test_a_daemon_that_does_not_quit_is_made_to(gpus: Gpus) -> None:
    """Within the deadlines of its keeper."""
    gpus.behave("stubborn")
    before = host()
    with Started(sharing()):
        pass
    assert gpus.is_clean()
    assert host() == before


SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from stagemesh.plan.save import from_json
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.signals import run_until_signal

async def main():
    omni = AsyncOmni(from_json(Path(sys.argv[1]).read_text()))
    await omni.start()
    serving = asyncio.ensure_future(run_until_signal(omni))
    await asyncio.sleep(0)
    print(json.dumps(list(omni.pids.values())), flush=True)
    await serving

asyncio.run(main())
"""


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_caller_is_the_end_of_its_daemons(
    gpus: Gpus, word: signal.Signals, tmp_path: Path
) -> None:
    """In order, and without a word as well."""
    (tmp_path / "plan.json").write_text(to_json(sharing()))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "plan.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            stages = json.loads(process.stdout.readline())
            process.send_signal(word)
            assert process.wait(WAIT_S) == (0 if word is signal.SIGTERM else -word)
        finally:
            process.kill()
    for pid in stages:
        wait_for_exit(pid)
    assert len(gpus.daemons) == 1
    assert gpus.is_clean()


def test_a_caller_that_dies_while_it_asks_leaves_nothing(gpus: Gpus, tmp_path: Path) -> None:
    """Neither the daemon, nor the program that was to bring its answer."""
    gpus.behave("hang")
    (tmp_path / "plan.json").write_text(to_json(sharing()))
    questions = gpus.program.with_name("mps.questions")
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "plan.json")]) as process:
        try:
            while not (gpus.daemons and questions.exists() and questions.read_text()):
                assert process.poll() is None
                time.sleep(POLL_S)
        finally:
            process.kill()
    for question in questions.read_text().split():
        wait_for_exit(int(question))
    assert len(gpus.daemons) == 1
    assert gpus.is_clean()


@pytest.mark.nightly
@pytest.mark.parametrize("is_killed", [False, True], ids=["in order", "killed"])
def test_a_headless_start_has_a_daemon_for_what_it_runs(
    gpus: Gpus,
    is_killed: bool,  # noqa: FBT001  how it ends
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the head, whose stage does not share, has none."""
    monkeypatch.setenv(TOKEN, SECRET)
    plan = on_gpus(fake_plan(three_stages()), {"talker": 1}, {"talker": None})
    with Starts(plan, tmp_path) as starts:
        worker = starts.worker(1, "127.0.0.3")
        starts.worker(2, "127.0.0.4")
        head = starts.head(0)
        assert head.run().text == TEXT
        [daemon] = gpus.daemons
        assert daemon.visible == "5"
        if is_killed:
            worker.kill()
        else:
            starts.close_head()
            assert worker.ended()[0] == 0
        assert gpus.is_clean()
