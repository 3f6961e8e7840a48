"""One model on several hosts, which are addresses of this one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config.environment import TOKEN
from stagemesh.errors import DiagnosticError, RequestError, StartupError
from stagemesh.plan.save import to_json
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import CheckpointPlan, Plan
from stagemesh.runtime.health import ReplicaHealth, ReplicaState
from stagemesh.runtime.launchers import head as head_module
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.testing.connector_conformance import open_fds
from stagemesh.testing.fake_plan import FakeStage, fake_plan, three_stages
from tests.runtime.launchers.starts import ROOT, SECRET, Starts
from tests.runtime.started import Started, wait_for_exit
from tests.waiting import WAIT_S

PLAN = fake_plan(three_stages())
NEVER = RecoveryPlan(restart="never")
SOON = RecoveryPlan(restart_delay=0.0)
CERTIFICATES = Path(__file__).parents[1] / "transport" / "certificates"
TLS = {
    "omni_tls_cert": str(CERTIFICATES / "ours.pem"),
    "omni_tls_key": str(CERTIFICATES / "ours.key"),
    "omni_tls_ca": str(CERTIFICATES / "ours-ca.pem"),
}


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, SECRET)


def until(started: Started, is_so: Callable[[], bool]) -> None:
    """Wait on the system's loop until something holds."""

    async def wait() -> None:
        while not is_so():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.02)

    started.call(asyncio.wait_for(wait(), WAIT_S))


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in listed.split()]


@pytest.mark.parametrize("options", [{}, TLS], ids=["plain", "TLS"])
def test_three_starts_make_one_pipeline(tmp_path: Path, options: dict[str, object]) -> None:
    """The head runs the first stage, two others the rest; all end with the head."""
    before = open_fds()
    with Starts(PLAN, tmp_path, **options) as starts:
        starts.worker(1, "127.0.0.3")
        starts.worker(2, "127.0.0.4")
        head = starts.head(0)
        results = head.many([f"prompt {number}" for number in range(5)])
        assert all(len(result.outputs) == 6 for result in results)
        health = head.omni.health()
        assert [each.replicas[0].pid is None for each in health.stages] == [False, True, True]
        assert [each.replicas[0].values["engine"] for each in health.stages] == ["fake"] * 3
        starts.close_head()
        assert starts.codes() == [0, 0]
    assert open_fds() == before


def test_a_head_without_a_stage_waits_for_all_and_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two replicas of a stage may come from two hosts, each with what is its own."""
    monkeypatch.setattr(head_module, "REPORT_S", 0.05)
    stages = (FakeStage(name="only", final="text", replicas=2),)
    other = fake_plan((replace(stages[0], args={"output_bytes": 70_000}, replicas=1),))
    with Starts(fake_plan(stages), tmp_path) as starts:
        starts.worker(0, "127.0.0.3")
        starts._plan = other
        starts.worker(0, "127.0.0.4")
        starts._plan = fake_plan(stages)
        head = starts.head("none")
        for _ in range(4):
            head.run()
        values = [each.values["engine_args"] for each in head.omni.health().stages[0].replicas]
        assert sorted(values, key=lambda args: len(str(args))) == [{}, {"output_bytes": 70_000}]
        starts.close_head()
        assert starts.codes() == [0, 0]
    assert "waiting for other starts to bring stage 0 (replica 0, 1)" in caplog.messages


def test_a_stage_of_headless_starts_is_scaled_at_the_head(tmp_path: Path) -> None:
    """A further replica is that of the next start of the stage, which ends when it leaves."""
    with Starts(fake_plan((FakeStage(name="only", final="text"),)), tmp_path) as starts:
        starts.worker(0, "127.0.0.3")
        head = starts.head("none")
        more = starts.worker(0, "127.0.0.4")
        head.call(head.omni.scale("only", 2))
        used = {head.run().report[0].replicas for _ in range(4)}
        assert used == {(0,), (1,)}
        head.call(head.omni.scale("only", 1))
        assert more.ended()[0] == 0
        assert head.run().report[0].replicas == (0,)
        starts.close_head()
        assert starts.codes()[0] == 0


def test_who_never_comes_is_named_at_the_deadline(tmp_path: Path) -> None:
    """Nothing is left running then."""
    before = open_fds()
    with Starts(PLAN, tmp_path) as starts:

        async def start() -> None:
            await AsyncOmni(starts.plan_of(0)).start(timeout_s=1.0)

        with pytest.raises(StartupError, match=r"not ready after 1 s: .*talker.*vocoder"):
            asyncio.run(start())
    assert open_fds() == before


@pytest.mark.parametrize(
    ("token", "model", "told"),
    [
        ("another token of that length", "", "the token is not the same"),
        (SECRET, "another", "started with another model, other edges or other connectors"),
    ],
    ids=["token", "model"],
)
def test_a_start_that_does_not_belong_ends_and_says_why(
    token: str, model: str, told: str, tmp_path: Path
) -> None:
    """The head goes on waiting for the right one."""
    with Starts(PLAN, tmp_path) as starts:
        starts._plan = replace(
            PLAN, checkpoint=CheckpointPlan(path="/elsewhere", config_hash=model)
        )
        wrong = starts.worker(1, "127.0.0.3", token=token)
        starts._plan = PLAN
        starts.worker(2, "127.0.0.4")

        with ThreadPoolExecutor(1) as beside:
            coming = beside.submit(starts.head, 0)
            code, text = wrong.ended()
            assert (code, told in text, SECRET in text) == (1, True, False)
            starts.worker(1, "127.0.0.3")
            assert len(coming.result(WAIT_S).run().outputs) == 6


def test_a_process_that_dies_elsewhere_fails_its_requests_and_comes_back(tmp_path: Path) -> None:
    """Its host starts it again, and registers it again."""
    stages = three_stages()
    plan = fake_plan((stages[0], replace(stages[1], recovery=SOON), stages[2]))
    with Starts(plan, tmp_path) as starts:
        worker = starts.worker(1, "127.0.0.3")
        starts.worker(2, "127.0.0.4")
        head = starts.head(0)
        (pid,) = children_of(worker.process.pid)
        os.kill(pid, signal.SIGKILL)
        until(head, lambda: _talker(head).num_restarts == 1)
        until(head, lambda: _talker(head).state is ReplicaState.SERVING)
        assert len(head.run().outputs) == 6
        assert children_of(worker.process.pid) != [pid]
        starts.close_head()
        assert starts.codes() == [0, 0]


def test_a_host_that_dies_takes_its_processes_along_and_is_told_of(tmp_path: Path) -> None:
    """Requests are refused at once then; another host may take the place."""
    stages = three_stages()
    plan = fake_plan((stages[0], replace(stages[1], recovery=SOON), stages[2]))
    with Starts(plan, tmp_path) as starts:
        worker = starts.worker(1, "127.0.0.3")
        starts.worker(2, "127.0.0.4")
        head = starts.head(0)
        (pid,) = children_of(worker.process.pid)
        worker.kill()
        wait_for_exit(pid)
        until(head, lambda: _talker(head).state is not ReplicaState.SERVING)
        with pytest.raises(RequestError):
            head.run()
        starts.worker(1, "127.0.0.5")
        until(head, lambda: _talker(head).state is ReplicaState.SERVING)
        assert len(head.run().outputs) == 6


def test_a_replica_that_stays_down_ends_its_start(tmp_path: Path) -> None:
    """By its policy; the reason is said on both sides."""
    stages = three_stages()
    plan = fake_plan((stages[0], replace(stages[1], recovery=NEVER), stages[2]))
    with Starts(plan, tmp_path) as starts:
        worker = starts.worker(1, "127.0.0.3")
        starts.worker(2, "127.0.0.4")
        head = starts.head(0)
        os.kill(children_of(worker.process.pid)[0], signal.SIGKILL)
        code, told = worker.ended()
        assert (code, "stays down: it was killed by SIGKILL" in told) == (1, True)
        until(head, lambda: _talker(head).state is ReplicaState.STOPPED)
        assert "was killed by SIGKILL" in str(_talker(head).reason)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start_with_all_it_runs(number: signal.Signals, tmp_path: Path) -> None:
    """Whether or not there is a head."""
    with Starts(PLAN, tmp_path) as starts:
        worker = starts.worker(1, "127.0.0.3")
        other = starts.worker(2, "127.0.0.4")
        starts.head(0)
        (pid,) = children_of(worker.process.pid)
        worker.process.send_signal(number)
        assert worker.ended()[0] == 0
        wait_for_exit(pid)
        assert other.process.poll() is None


def test_workers_end_when_the_head_is_killed(tmp_path: Path) -> None:
    """Nothing is left on any host."""
    with Starts(PLAN, tmp_path) as starts:
        worker = starts.worker(1, "127.0.0.3")
        starts.worker(2, "127.0.0.4")
        path = tmp_path / "head.json"
        path.write_text(to_json(starts.plan_of(0)), encoding="utf-8")
        with subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.launchers.heading", str(path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        ) as head:
            assert head.stdout is not None
            assert head.stdout.readline() == b"up\n"
            (pid,) = children_of(worker.process.pid)
            (own,) = children_of(head.pid)
            head.kill()
        wait_for_exit(own)
        for code, told in [each.ended() for each in starts.workers]:
            assert (code, "the head is gone" in told) == (1, True)
        wait_for_exit(pid)


def _talker(head: Started) -> ReplicaHealth:
    return head.omni.health().stages[1].replicas[0]


def test_a_headless_start_cannot_be_asked(tmp_path: Path) -> None:
    """It works for the head, which can."""
    plan = Starts(PLAN, tmp_path).plan_of(1, headless=True)
    with pytest.raises(DiagnosticError, match="answers nobody itself") as caught:
        AsyncOmni(plan)
    assert caught.value.diagnostics[0].code == "RT024"


def test_a_head_that_others_reach_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started; said explicitly, none is needed."""
    monkeypatch.delenv(TOKEN)
    plan = Starts(PLAN, tmp_path).plan_of(0)
    world = replace(plan, launch=replace(plan.launch, omni_master_address="0.0.0.0"))  # noqa: S104  what is refused

    async def start(plan: Plan) -> None:
        await AsyncOmni(plan).start(timeout_s=0.1)

    with pytest.raises(DiagnosticError, match="there is no token"):
        asyncio.run(start(world))
    open_to_all = replace(world, launch=replace(world.launch, insecure_no_token=True))
    with pytest.raises(StartupError, match="not ready after"):
        asyncio.run(start(open_to_all))
