"""Logs of requests: a line about one carries its name, and the stage and replica if any."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagemesh.errors import ClosedError, DeadlineError
from stagemesh.runtime.running import Seat
from stagemesh.runtime.telemetry import Outcome
from stagemesh.serve.logs import JsonLines, RequestLog, TextLines
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.serve.served import serving


@pytest.fixture
def info(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Records of level INFO and above."""
    with caplog.at_level(logging.INFO, logger="stagemesh"):
        yield caplog


def test_a_request_has_a_line_at_its_begin_and_one_at_its_end(
    info: pytest.LogCaptureFixture,
) -> None:
    """With its outcome, and with the stage that an error names."""
    log = RequestLog()
    log.begun("r", {0: Seat(stage="one", replica=2)})
    log.entered("r", {1: Seat(stage="two", replica=0), 2: Seat(stage="three", replica=1)})
    log.ended("r", Outcome.FINISHED, None)
    late = DeadlineError("too late", stage="one", replica=2)
    log.ended("s", Outcome.DEADLINE, late)
    log.refused("t", Outcome.CLOSED, ClosedError("closed"))
    lines = [json.loads(JsonLines().format(record)) for record in info.records]
    assert [line["message"] for line in lines] == [
        "begins at one 2",
        "goes on to two 0, three 1",
        "has finished",
        "ended: deadline: too late",
        "is not taken: closed: closed",
    ]
    assert [line["request_id"] for line in lines] == ["r", "r", "r", "s", "t"]
    assert (lines[3]["stage"], lines[3]["replica"]) == ("one", 2)
    assert lines[0]["level"] == "info"
    assert lines[0]["time"].endswith("+00:00")


def test_both_formats_show_tracebacks_and_lines_about_nothing(
    info: pytest.LogCaptureFixture,
) -> None:
    """Fields only where there are any."""
    log = logging.getLogger("stagemesh.x")
    log.info("plain")
    try:
        int("cause")
    except ValueError:
        log.exception("broken", extra={"request_id": "r", "stage": "one", "replica": 0})
    plain, broken = info.records
    assert json.loads(JsonLines().format(plain)).keys() == {"time", "level", "logger", "message"}
    assert "ValueError: invalid" in json.loads(JsonLines().format(broken))["traceback"]
    assert TextLines().format(plain).endswith(" stagemesh.x: plain")
    shown = TextLines().format(broken)
    assert " stagemesh.x [request_id=r stage=one replica=0]: broken\n" in shown
    assert shown.endswith("'cause'")


@pytest.mark.slow
def test_the_traceback_of_a_stage_tells_its_request(
    tmp_path: Path, info: pytest.LogCaptureFixture
) -> None:
    """What the process of a stage writes about a request is known to be about it."""
    plan = fake_plan([FakeStage(name="one", final="text")])
    with serving(plan, tmp_path) as client:
        client.server.observers.add(RequestLog())
        params = {"one": {"fail_at": "raise"}}
        asked = {"prompt": "hi", "request_id": "mine", "sampling_params": params}
        assert client.post(asked)[0] == 503
    about = [vars(record) for record in info.records if vars(record).get("request_id") == "mine"]
    told = {(each["name"], each.get("stage"), each.get("replica")) for each in about}
    assert ("stagemesh.stage.one", "one", 0) in told
    assert ("stagemesh.requests", "one", 0) in told
