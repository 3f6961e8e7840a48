"""`stagemesh serve` around the server: what is checked before it, and how it is stopped.

The server is a stand-in here; the real one is asked in tests/serve and tests/e2e.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import stagemesh.cli._serve
from stagemesh.cli._main import main
from stagemesh.plan.values import Plan
from stagemesh.runtime.descriptors import reachable_files
from stagemesh.runtime.telemetry import Observers
from stagemesh.runtime.transport.token import Secret
from stagemesh.serve.frontends.parent import FrontendLog
from stagemesh.serve.server import Listening, ServeOptions

KEY = "an open sesame that is long"


class Stopped:
    """Stands in for `Server`: is ready at once, and is told to stop by a signal."""

    options: ClassVar[ServeOptions]

    def __init__(self, plan: Plan, options: ServeOptions) -> None:
        """Remember how it was asked to serve."""
        assert plan.pipeline == "voice_chat"
        Stopped.options = options
        self.observers = Observers()
        self._stop = asyncio.Event()

    async def run(self, on_ready: Callable[[Listening], None]) -> None:
        """Serve until the signal that comes at once."""
        self.observers.begun("mine", {})
        on_ready(Listening(url="http://127.0.0.1:8000", control=Path("8000.sock")))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(self._stop.wait(), 60)

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A checkpoint folder that can be planned; its server is the stand-in."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "voice_chat"}))
    for stage in ("thinker", "talker", "code2wav"):
        (folder / stage).mkdir()
        (folder / stage / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(stagemesh.cli._serve, "Server", Stopped)
    monkeypatch.delenv("STAGEMESH_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield str(folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_it_serves_until_sigterm(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan, where it serves, and that it has stopped; nothing on standard output."""
    assert main(["serve", model]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Plan for voice_chat: 3 stages")
    assert shown.err.endswith("serving at http://127.0.0.1:8000, Ctrl-C stops\nstopped\n")
    assert Stopped.options == ServeOptions()


def test_a_headless_start_works_for_its_head_alone(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No server is started, so a signal that a server would wait for is not needed."""
    worked: list[Plan] = []

    async def run_headless(plan: Plan) -> None:
        worked.append(plan)

    monkeypatch.setattr(stagemesh.cli._serve, "run_headless", run_headless)
    typed = "--headless --stage-id talker -oma 127.0.0.2 -omp 9000"
    assert main(["serve", model, *typed.split()]) == 0
    assert [plan.launch.stage_id for plan in worked] == [1]
    shown = capsys.readouterr()
    assert (shown.out, "serving at" in shown.err) == ("", False)


def test_a_plan_of_several_frontends_is_given_to_their_parent(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is logged of requests, which each frontend does itself."""
    given: list[tuple[int, FrontendLog]] = []

    class Parent(Stopped):
        def __init__(self, plan: Plan, options: ServeOptions, log: FrontendLog) -> None:
            super().__init__(plan, options)
            given.append((plan.launch.api_server_count, log))

    monkeypatch.setattr(stagemesh.cli._serve, "Frontends", Parent)
    # what else speaks against it is about sessions, of which this model has none
    monkeypatch.setattr(stagemesh.cli._serve, "check_executable", lambda _plan: [])
    assert main(["serve", model, "--api-server-count", "3", "--log-format", "json"]) == 0
    assert given == [(3, FrontendLog(form="json"))]
    assert main(["--debug", "serve", model, "--api-server-count", "2"]) == 0
    assert given[1:] == [(2, FrontendLog(debug=True))]


HEADLESS = ("--headless", "--stage-id", "talker", "-oma", "127.0.0.2", "-omp", "9000")
OF_USERS = {
    "--host": "127.0.0.1",
    "--port": "8000",
    "--api-key-file": "missing",
    "--control-socket": "own.sock",
    "--queue-limit": "-1",
    "--max-request-bytes": "1",
    "--max-unread-bytes": "1",
}


def test_what_is_about_users_is_refused_by_a_headless_start(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One diagnostic each, at its default or not, and nothing else about any of them."""
    typed = [word for pair in OF_USERS.items() for word in pair]
    assert main(["serve", model, *HEADLESS, *typed]) == 1
    shown = capsys.readouterr().err
    assert shown.count("error[") == len(OF_USERS)
    for flag in OF_USERS:
        assert shown.count(f"error[SV006]: `{flag}`") == 1


def test_every_option_of_a_server_but_its_log_is_about_users(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So that none is forgotten above: a headless start logs as well."""
    assert main(["serve", "--help"]) == 0
    shown = capsys.readouterr().out.partition("\nserver:\n")[2]
    assert set(re.findall(r"^  (--[a-z-]+)", shown, flags=re.MULTILINE)) == {
        *OF_USERS,
        "--log-format",
    }


def test_a_server_may_open_as_many_files_as_it_can_be_allowed(model: str) -> None:
    """Every client takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    assert main(["serve", model]) == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == reachable_files(256, hard)


@pytest.mark.usefixtures("own_log")
def test_under_json_every_line_is_an_object(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is said otherwise as well, and a line for a request."""
    assert main(["serve", model, "--log-format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["message"].startswith("Plan for voice_chat: 3 stages")
    assert lines[-1]["message"] == "stopped"
    assert [line["logger"] for line in lines if line.get("request_id") == "mine"] == [
        "stagemesh.requests"
    ]


@pytest.mark.usefixtures("own_log")
def test_under_debug_a_line_is_shown_once(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The format that was asked for takes the place of the usual one."""
    assert main(["serve", model, "--debug", "--log-format", "text"]) == 0
    shown = capsys.readouterr().err
    assert shown.count("begins at") == 1
    assert " stagemesh.requests [request_id=mine]: begins at" in shown
    assert logging.getLogger("stagemesh").level == logging.DEBUG


@pytest.fixture
def own_log() -> Iterator[None]:
    """Put the log back as it was."""
    log = logging.getLogger("stagemesh")
    handlers, level = log.handlers[:], log.level
    yield
    log.handlers[:] = handlers
    log.setLevel(level)


def test_every_option_reaches_the_server(model: str) -> None:
    """Address, key, control socket and limits."""
    Path("key").write_text(f"{KEY}\n")
    Path("key").chmod(0o600)
    typed = "--host 0.0.0.0 --port 9000 --api-key-file key --control-socket own.sock"
    typed += " --queue-limit 0 --max-request-bytes 1000 --max-unread-bytes 2000"
    assert main(["serve", model, *typed.split()]) == 0
    assert Stopped.options == ServeOptions(
        host="0.0.0.0",  # noqa: S104  with a key
        port=9000,
        key=Secret(token=KEY.encode()),
        control=Path("own.sock"),
        queue_limit=0,
        max_request_bytes=1000,
        max_unread_bytes=2000,
    )


def test_the_key_may_come_from_the_environment(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It opens the server to other hosts and is never shown."""
    monkeypatch.setenv("STAGEMESH_API_KEY", KEY)
    assert main(["serve", model, "--host", "0.0.0.0"]) == 0  # noqa: S104  with a key
    assert Stopped.options.key.token == KEY.encode()
    shown = capsys.readouterr()
    assert KEY not in shown.out + shown.err


def test_a_server_without_a_key_for_other_hosts_has_to_be_asked_for(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error with both ways out, unless it is said explicitly."""
    assert main(["serve", model, "--host", "::"]) == 1
    assert "error[RT022]" in capsys.readouterr().err
    assert main(["serve", model, "--host", "::", "--insecure-no-token"]) == 0
    assert "RT025" not in capsys.readouterr().err


def test_a_permission_that_nobody_could_use_is_told(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind the address of this host alone, and where everybody needs a key anyway."""
    assert main(["serve", model, "--insecure-no-token"]) == 0
    assert "warning[RT025]: `--insecure-no-token` has no effect" in capsys.readouterr().err
    monkeypatch.setenv("STAGEMESH_API_KEY", KEY)
    assert main(["serve", model, "--host", "::", "--insecure-no-token"]) == 0
    assert "warning[RT025]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "flag"),
    [
        (["--port", "65536"], "SV005", "--port"),
        (["--port", "-1"], "SV005", "--port"),
        (["--queue-limit", "-1"], "SV005", "--queue-limit"),
        (["--max-request-bytes", "0"], "SV005", "--max-request-bytes"),
        (["--max-unread-bytes", "0"], "SV005", "--max-unread-bytes"),
        (["--api-key-file", "missing"], "RT020", "missing"),
        (["--api-key-file", "empty"], "RT021", "--api-key-file"),
    ],
)
def test_a_wrong_option_is_told_before_anything_is_started(
    model: str, arguments: list[str], code: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the flag that is at fault."""
    Path("empty").write_text(" \n")
    Path("empty").chmod(0o600)
    assert main(["serve", model, *arguments]) == 1
    shown = capsys.readouterr().err
    assert f"error[{code}]" in shown
    assert flag in shown
    assert "serving" not in shown


def test_a_plan_that_cannot_be_made_or_run_is_not_served(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its mistakes are told as by `plan`."""
    assert main(["serve", model, "--set", "thinker.nothing=1"]) == 1
    (Path(model) / "thinker" / "model.safetensors").unlink()
    assert main(["serve", model]) == 1
    shown = capsys.readouterr().err
    assert "error[RT003]" in shown
    assert "serving" not in shown
