"""One stage process from outside: what it writes, and why it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagemesh.config.environment import API_KEY, TOKEN
from stagemesh.errors import StageFailedError
from stagemesh.plan.save import to_json
from stagemesh.runtime import child
from stagemesh.runtime.launchers.local import StageProcess
from stagemesh.runtime.messages import PROTOCOL, Key, Message, Setup, Submit
from stagemesh.runtime.process import Incarnation, Start
from stagemesh.runtime.stage_output import StageOutput
from stagemesh.runtime.surroundings import Surroundings
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

PLAN = fake_plan(three_stages())
SAVED = to_json(PLAN)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            Setup(protocol=PROTOCOL + 1, plan=SAVED, stage=1, replica=0),
            f"failed: protocol `{PROTOCOL + 1}` is not `{PROTOCOL}`",
        ),
        (
            Submit(key=Key(rid="r", epoch=0), params={}, targets={}),
            "failed: the supervisor does not say `Submit`",
        ),
    ],
)
def test_a_stage_says_why_before_it_dies(message: Message, told: str) -> None:
    """What it did not understand is the reason of its end, not the signal that ended it."""

    async def run() -> str:
        process = StageProcess(
            Start(
                who=Incarnation(stage="talker", replica=0),
                stage=PLAN.stage(1),
                saved_plan=SAVED,
                on_exit=lambda _reason: None,
                on_blame=lambda _blame: None,
            ),
            [Surroundings()],
        )
        process.control.send(message)
        return await asyncio.wait_for(process.exited, WAIT_S)

    assert asyncio.run(run()) == told


def test_what_a_stage_writes_is_logged_under_its_name(
    streaming: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """The traceback of a request that failed is found although the process lives on."""
    with (
        caplog.at_level(logging.INFO, "stagemesh.stage.talker"),
        pytest.raises(StageFailedError),
    ):
        streaming.run(params={"talker": {"fail_at": "raise"}})
    streaming.run()
    assert {record.name for record in caplog.records} == {"stagemesh.stage.talker"}
    assert "replica 0: RuntimeError: the program fails at `raise`" in caplog.messages


def written(*pieces: bytes) -> str:
    """The last lines after a process has written `pieces`."""
    reader, writer = os.pipe()
    output = StageOutput(os.fdopen(reader, "rb", buffering=0), "thinker", 0)
    assert output.read()
    for piece in pieces:
        os.write(writer, piece)
        assert output.read()
    os.close(writer)
    assert not output.read()
    output.close()
    return output.last_lines()


def test_lines_are_put_together_and_the_last_ones_kept() -> None:
    """Whatever pieces they come in; what has no end yet counts at the close."""
    assert written(b"on", b"e\ntw", b"o\n\xff\nthree") == "one\ntwo\n\ufffd\nthree"
    assert written(b"".join(b"%d\n" % number for number in range(40))).split() == [
        str(number) for number in range(28, 40)
    ]


def test_a_line_without_end_is_bounded() -> None:
    """It is cut, so that no stage fills the memory of its supervisor."""
    lines = written(*[b"x" * 10_000] * 5).splitlines()
    assert len(lines) == 12
    assert {len(line) for line in lines[:-1]} == {2048}


def test_a_stage_finds_our_modules_first_and_then_its_own() -> None:
    """Where its environment says, before where this process looks."""
    paths = child.search_path({"PYTHONPATH": "/own/one::/own/two"}).split(os.pathsep)
    assert (Path(paths[0]) / "stagemesh").is_dir()
    assert paths[1:3] == ["/own/one", "/own/two"]
    assert len(paths) > 3


def test_secrets_do_not_reach_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs foreign code, and has no use for them; what else is not hidden is passed on."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(subprocess, "Popen", lambda _command, **options: seen.update(options))
    for name in (TOKEN, API_KEY, "TEST_OTHER", "TEST_HIDDEN"):
        monkeypatch.setenv(name, "a secret of some length")
    one, other = socket.socketpair()
    with one, other:
        who = Incarnation(stage="talker", replica=0)
        own = {"TEST_OWN": "1", "TEST_HIDDEN_TOO": "1"}
        hidden = frozenset({"TEST_HIDDEN", "TEST_HIDDEN_TOO"})
        child._spawn(who, [one], Surroundings(variables=own, hidden=hidden))
    assert {"TEST_OTHER", "TEST_OWN", "PYTHONPATH"} <= set(seen["env"])
    assert not {TOKEN, API_KEY, *hidden} & set(seen["env"])
