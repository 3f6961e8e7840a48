"""What whoever runs a server asks of it: its state, and more replicas or fewer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagemesh.cli._main import main
from stagemesh.serve.sockets import listen_at
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.serve.served import Client, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server of two stages."""
    plan = fake_plan([FakeStage(name="one"), FakeStage(name="two", final="text")])
    with serving(plan, tmp_path_factory.mktemp("serve")) as found:
        yield found


@pytest.fixture
def flag(server: Client) -> list[str]:
    """Names the server on a command line."""
    return ["--server", str(server.listening.control)]


def test_top_shows_every_replica(flag: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A table for people, the same as data for programs."""
    assert main(["top", "--once", *flag]) == 0
    head, columns, *rows = capsys.readouterr().out.splitlines()
    assert head == "fakes: serving"
    assert columns.split()[:3] == ["stage", "replica", "state"]
    assert {"queue", "wait", "running", "outputs/s", "first"} <= set(columns.split())
    assert [row.split()[:3] for row in rows] == [["one", "0", "serving"], ["two", "0", "serving"]]
    assert main(["top", "--json", *flag]) == 0
    state = json.loads(capsys.readouterr().out)
    assert [stage["stage"] for stage in state["stages"]] == ["one", "two"]
    queued = [stage["replicas"][0]["queued"] for stage in state["stages"]]
    assert queued == [0, None], "requests wait for room at the first stage alone"


def test_top_watches_until_it_is_interrupted(
    flag: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the table is drawn again and again."""
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("stagemesh.cli._top.time.sleep", sleep)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["top", *flag]) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert looks == [1.0] * 3
    assert "fakes: serving" in capsys.readouterr().out


def test_a_stage_is_scaled_up_and_down_while_it_serves(
    server: Client, flag: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command returns when it is so, and requests are answered before, between and after."""
    assert server.post({"prompt": "hi"})[0] == 200
    assert main(["scale", "one", "3", *flag]) == 0
    shown = capsys.readouterr().out
    assert shown.count("serving") == 1 + 3 + 1
    for number in range(6):
        assert server.post({"prompt": f"p{number}"})[0] == 200
    assert main(["scale", "one", "1", "--json", *flag]) == 0
    [one, _] = json.loads(capsys.readouterr().out)["stages"]
    assert [replica["state"] for replica in one["replicas"]] == ["serving"]
    assert server.post({"prompt": "hi"})[0] == 200


@pytest.mark.parametrize(("stage", "replicas"), [("three", "1"), ("one", "0"), ("one", "10001")])
def test_what_the_server_refuses_is_told_here(
    flag: list[str], stage: str, replicas: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown stage and impossible numbers are the diagnostics of the server."""
    assert main(["scale", stage, replicas, *flag]) == 1
    assert "error[" in capsys.readouterr().err


def test_without_a_server_and_with_several_of_them_one_has_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """None, two, one that is gone, and something that speaks another language."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert main(["top"]) == 1
    assert "error[CL030]" in capsys.readouterr().err
    folder = tmp_path / "stagemesh"
    with listen_at(folder / "8000.sock"), listen_at(folder / "8001.sock"):
        assert main(["top"]) == 1
        shown = capsys.readouterr().err
        assert "error[CL031]" in shown
        assert "`8000`, `8001`" in shown
    assert main(["top", "--server", "8000"]) == 1
    assert "error[CL032]" in capsys.readouterr().err


def test_the_only_server_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is found by its control socket; here it never answers, which has a deadline."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("stagemesh.cli._top._WAIT_S", 0.1)
    with listen_at(tmp_path / "stagemesh" / "8000.sock"):
        assert main(["top"]) == 1
    assert "error[CL032]" in capsys.readouterr().err
