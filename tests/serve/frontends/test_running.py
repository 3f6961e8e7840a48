"""Several frontends that run: what is known of all, and what becomes of them one by one."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from stagemesh.cli._main import main
from stagemesh.errors import DiagnosticError, StartupError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.serve.frontends import parent, process, watch
from stagemesh.serve.frontends.parent import FrontendLog, Frontends
from stagemesh.serve.server import ServeOptions
from stagemesh.serve.sockets import listen_on
from tests.runtime.leaks import host, wait_until_as
from tests.runtime.started import wait_for_exit
from tests.serve.frontends import wrong
from tests.serve.frontends.several import Several, divided, several
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """Two frontends with a replica each."""
    with several(divided(2), tmp_path_factory.mktemp("serve")) as found:
        yield found


def pids(server: Several) -> list[list[int]]:
    """The process of every frontend, and that of its replica."""
    state = server.state()
    (stage,) = state["stages"]
    return [
        [frontend["pid"], replica["pid"]]
        for frontend, replica in zip(state["frontends"], stage["replicas"], strict=True)
    ]


def test_whoever_is_asked_answers_for_all(server: Several) -> None:
    """Many connections reach all of them, and hear the same."""
    told = (
        '{"state":"serving","frontends":["serving","serving"],'
        '"stages":[{"stage":"stage0","is_healthy":true,"replicas":["serving","serving"]}]}'
    )
    assert {server.get("/health") for _ in range(12)} == {(200, told.encode())}
    for _ in range(12):
        status, body = server.get("/metrics")
        assert status == 200
        for number in range(2):
            series = f'frontend="{number}",replica="{number}",stage="stage0"'
            assert f"stagemesh_stage_up{{{series}}} 1.0" in body.decode()


def test_top_lists_the_frontends_and_their_replicas(
    server: Several, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table for people, the same as data for programs."""
    flag = ["--server", str(server.listening.control)]
    assert main(["top", "--once", *flag]) == 0
    head, columns, *rows = capsys.readouterr().out.splitlines()
    assert head == "fakes: serving"
    assert columns.split() == ["frontend", "state", "process", "restarts", "owns", "reason"]
    assert [row.split()[:2] for row in rows[:2]] == [["0", "serving"], ["1", "serving"]]
    assert [row.split()[-3:-1] for row in rows[:2]] == [["stage0", "0"], ["stage0", "1"]]
    assert rows[2].split()[:3] == ["stage", "replica", "state"]
    assert main(["top", "--json", *flag]) == 0
    assert len(json.loads(capsys.readouterr().out)["frontends"]) == 2


def test_groups_keep_their_replicas(server: Several) -> None:
    """More or fewer are refused by the parent; as many as there are is all that can be asked."""
    with pytest.raises(DiagnosticError, match="RT041"):
        server.scale("stage0", 3)
    server.scale("stage0", 2)
    assert server.state()["state"] == "serving"


def test_the_port_is_taken_once(server: Several, tmp_path: Path) -> None:
    """Another server is refused before anything of it is started."""
    before = host()
    refused = several(divided(2), tmp_path, port=server.address[1])
    with pytest.raises(DiagnosticError, match="already in use"), refused:
        pass
    assert host().children == before.children


def test_one_that_is_killed_takes_its_replicas_with_it_and_comes_back(server: Several) -> None:
    """The other goes on as it was, and all connections reach it meanwhile."""
    before = pids(server)
    restarts = server.state()["frontends"][1]["num_restarts"]
    os.kill(before[1][0], signal.SIGKILL)
    for pid in before[1]:
        wait_for_exit(pid)
    server.until(lambda state: state["frontends"][1]["pid"] != before[1][0])
    assert server.get("/health")[0] == 200
    state = server.until(lambda state: state["frontends"][1]["state"] == "serving")
    assert state["frontends"][1]["num_restarts"] == restarts + 1
    after = pids(server)
    assert after[0] == before[0]
    assert not set(after[1]) & set(before[1])
    _, body = server.get("/metrics")
    assert f'stagemesh_frontend_restarts_total{{frontend="1"}} {restarts + 1}' in body.decode()


def test_a_replica_is_the_affair_of_its_own_frontend(server: Several) -> None:
    """It comes back below the process that it had, under its number."""
    before = pids(server)
    os.kill(before[0][1], signal.SIGKILL)
    state = server.until(
        lambda state: (
            state["stages"][0]["replicas"][0]["pid"] not in (None, before[0][1])
            and state["stages"][0]["replicas"][0]["state"] == "serving"
        )
    )
    assert [one["replica"] for one in state["stages"][0]["replicas"]] == [0, 1]
    assert pids(server)[0][0] == before[0][0]


def test_one_that_does_not_answer_is_told_of(
    server: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others answer for the whole all the same."""
    monkeypatch.setattr(parent, "_LOOK_S", 0.3)
    (pid, _), _ = pids(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        state = server.until(lambda state: state["frontends"][0]["state"] == "unhealthy")
        assert state["frontends"][0]["reason"] == "it does not answer"
        assert (state["state"], state["frontends"][1]["state"]) == ("serving", "serving")
        assert [one["state"] for one in state["stages"][0]["replicas"]] == ["unhealthy", "serving"]
    finally:
        os.kill(pid, signal.SIGCONT)
    server.until(lambda state: state["frontends"][0]["state"] == "serving")


def test_one_that_stays_silent_is_ended_and_comes_back(
    server: Several, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGSTOP is silence, and nobody sends it SIGCONT; the other goes on as it was."""
    before = pids(server)
    restarts = server.state()["frontends"][1]["num_restarts"]
    monkeypatch.setattr(parent, "_LOOK_S", 0.3)
    monkeypatch.setattr(watch, "INTERVAL_S", 0.25)
    os.kill(before[1][0], signal.SIGSTOP)
    for pid in before[1]:
        wait_for_exit(pid)
    state = server.until(
        lambda state: (
            state["frontends"][1]["num_restarts"] > restarts
            and state["frontends"][1]["state"] == "serving"
        )
    )
    assert state["frontends"][1]["num_restarts"] == restarts + 1
    assert "frontend `1` has not answered for 2 s" in caplog.messages
    after = pids(server)
    assert after[0] == before[0]
    assert not set(after[1]) & set(before[1])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("log", "told"),
    [
        (FrontendLog(form="json"), '"frontend": 0, "request_id": "mine"'),
        (FrontendLog(form="text"), "stagemesh.requests [frontend=0 request_id=mine]: is not taken"),
        (FrontendLog(debug=True), "frontend 0: stagemesh."),
        (FrontendLog(), None),
    ],
)
def test_lines_of_the_log_say_whose_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], log: FrontendLog, told: str | None
) -> None:
    """Frontends write to the standard error of their parent; without a word they log nothing."""
    with several(divided(1), tmp_path, log=log) as server:
        connection = http.client.HTTPConnection(*server.address, timeout=WAIT_S)
        body = json.dumps({"prompt": "outside of any session", "request_id": "mine"})
        connection.request("POST", "/v1/generate", body)
        assert connection.getresponse().status == 400
        connection.close()
        os.kill(pids(server)[0][1], signal.SIGKILL)
        server.until(lambda state: state["stages"][0]["replicas"][0]["num_restarts"] == 1)
    shown = capfd.readouterr().err
    if told is None:
        assert "request" not in shown
    else:
        assert told in shown


def test_nothing_is_left_when_it_has_stopped(tmp_path: Path) -> None:
    """No process, descriptor, shared memory or control socket, and the port is free.

    One that was started again makes no difference.
    """
    before = host()
    with several(divided(2), tmp_path) as server:
        control, address = server.listening.control, server.address
        os.kill(pids(server)[0][0], signal.SIGKILL)
        server.until(
            lambda state: (
                state["frontends"][0]["num_restarts"] == 1
                and state["frontends"][0]["state"] == "serving"
            )
        )
        running = [pid for both in pids(server) for pid in both]
        assert control is not None
        assert control.exists()
    for pid in running:
        wait_for_exit(pid)
    wait_until_as(before)
    assert not control.exists()
    with listen_on(*address):
        pass


@pytest.mark.nightly
def test_a_frontend_that_does_not_come_up_ends_all_of_them(tmp_path: Path) -> None:
    """The error names the stage, as that of one server does."""
    before = host()
    with pytest.raises(StartupError) as caught, several(divided(2, fail_at="load"), tmp_path):
        pass
    assert caught.value.stage == "stage0"
    assert "the program fails at `load`" in str(caught.value)
    wait_until_as(before)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("garbage", "it cannot be understood"),
        ("a word of the parent", "a frontend does not say `Stop`"),
        ("silent end", "exited with code 3"),
        ("closed stream", "was killed by SIGKILL"),
    ],
)
def test_a_frontend_that_is_wrong_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, told: str
) -> None:
    """Whatever it says or does not say, its parent says why, and nothing of it is left."""
    monkeypatch.setattr(process, "_MODULE", wrong.__name__)
    monkeypatch.setattr(process, "_LINGER_S", 0.2)
    monkeypatch.setenv(wrong.HOW, how)
    before = host()
    with pytest.raises(StartupError, match=told), several(divided(2), tmp_path):
        pass
    wait_until_as(before)


def test_limits_on_all_are_divided_among_the_frontends() -> None:
    """Nobody lends any; what is about one request holds for each as it is."""
    server = Frontends(divided(3), ServeOptions(queue_limit=5, max_request_bytes=7))
    begins = [server._begin(one) for one in server._all]
    assert [begin.queue_limit for begin in begins] == [2, 2, 1]
    assert {begin.max_request_bytes for begin in begins} == {7}
    unlimited = Frontends(divided(2), ServeOptions())
    assert [unlimited._begin(one).queue_limit for one in unlimited._all] == [None, None]


@pytest.mark.nightly
def test_a_server_without_frontends_ends(tmp_path: Path) -> None:
    """Where no stage is started again, neither is a frontend."""
    never = RecoveryPlan(restart="never")
    before = host()
    with pytest.raises(StartupError, match="no frontend is left to serve") as caught:
        _killed_one_by_one(several(divided(2, recovery=never), tmp_path))
    assert "was killed by SIGKILL" in str(caught.value)
    wait_until_as(before)


@pytest.mark.nightly
def test_a_second_stop_ends_a_frontend_that_does_not_hear_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped in the middle of whatever it does."""
    monkeypatch.setattr(parent, "_AT_ONCE_S", 0.1)
    before = host()
    with several(divided(2), tmp_path) as server:
        running = [pid for both in pids(server) for pid in both]
        os.kill(running[0], signal.SIGSTOP)
        server.stop()
    for pid in running:
        wait_for_exit(pid)
    wait_until_as(before)


def _killed_one_by_one(serving: AbstractContextManager[Several]) -> None:
    """Kill each frontend once the one before it is known to stay down."""
    with serving as server:
        (first, _), (last, replica) = pids(server)
        os.kill(first, signal.SIGKILL)
        server.until(lambda state: state["frontends"][0]["state"] == "stopped")
        assert server.get("/health")[0] == 200, "one is left"
        os.kill(last, signal.SIGKILL)
        for pid in (last, replica):
            wait_for_exit(pid)
        server.wait_for_end()


SCRIPT = """
import asyncio, sys
from pathlib import Path
from stagemesh.serve.frontends.parent import Frontends
from stagemesh.serve.server import ServeOptions
from tests.serve.frontends import wrong
from tests.serve.frontends.several import divided

async def run():
    server = Frontends(divided(2), ServeOptions(port=0, control=Path(sys.argv[1])))
    keeper = asyncio.ensure_future(server.run(lambda _: ready.set()))
    ready = asyncio.Event()
    await ready.wait()
    state = await server.state()
    pids = [one["pid"] for one in state["frontends"]]
    pids += [one["pid"] for one in state["stages"][0]["replicas"]]
    print(*pids, flush=True)
    await keeper

asyncio.run(run())
"""


def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Frontends find their streams closed, and their stages theirs."""
    control = tmp_path / "private" / "s.sock"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(control)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=Path(__file__).parents[3],
    ) as caller:
        assert caller.stdout is not None
        running = list(map(int, caller.stdout.readline().split()))
        caller.kill()
    assert len(running) == 4
    for pid in running:
        wait_for_exit(pid)
