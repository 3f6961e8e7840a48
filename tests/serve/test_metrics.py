"""What a server tells Prometheus: every metric has a sample from a real run, and the right one."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stagemesh.plan.setup import RecoveryPlan
from stagemesh.runtime import monitor
from stagemesh.runtime.replica import ReplicaId
from stagemesh.serve.meter import Playback
from stagemesh.serve.metric_table import METRICS, PREFIX, SESSIONS, Kind
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.serve.served import Client, serving
from tests.waiting import WAIT_S

RATE = 16_000
SECONDS = 0.5
Found = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]


def found_at(client: Client) -> Found:
    """All samples of a server by name and labels."""
    status, headers, body = client.get("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def total(found: Found, name: str, **labels: str) -> float:
    """The sum of all series of a name that have these labels."""
    wanted = set(labels.items())
    series = found.get(f"{PREFIX}{name}", {})
    return sum(value for given, value in series.items() if wanted <= set(given))


def sound() -> Mapping[str, Any]:
    """A prompt that is half a second of audio."""
    data = base64.b64encode(bytes(int(4 * RATE * SECONDS))).decode()
    buffer = {
        "name": "audio",
        "dtype": "float32",
        "shape": [int(RATE * SECONDS)],
        "data": data,
    }
    return {"meta": {"sampling_rate": RATE}, "buffers": [buffer]}


async def left_early(client: Client) -> None:
    """Ask for more than anybody reads, and go after the first output."""
    asked = {"prompt": "hi", "sampling_params": {"one": {"num_outputs": 5000}}}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{client.listening.url}/v1/generate", json=asked) as answer,
    ):
        await answer.content.readline()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server that has seen audio, a mistake, a user who left, and a death."""
    stages = [
        FakeStage(name="one", args={"output_bytes": 20_000}),
        FakeStage(name="two", final="audio", recovery=RecoveryPlan(restart_delay=0.0)),
    ]
    plan = fake_plan(stages, arena_bytes=128 * 1024)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitor, "INTERVAL_S", 0.05)
        with serving(plan, tmp_path_factory.mktemp("serve")) as client:
            assert client.post({"prompt": sound()})[0] == 200
            assert (
                client.post({"prompt": "hi", "sampling_params": {"one": {"fail_at": "add"}}})[0]
                == 400
            )
            client.call(left_early(client))
            yield client


@pytest.mark.slow
def test_every_metric_is_fed_by_a_real_run(client: Client) -> None:
    """None is exported that nothing counts for; all but one are seen above 0."""
    fed: set[str] = set()
    named: set[str] = set()

    def look() -> set[str]:
        """What has not been seen yet."""
        if f"{PREFIX}transfer_dropped_late_total" not in fed:
            client.call(left_early(client))  # until one goes while something is on its way
        for name, series in found_at(client).items():
            fed.update({name} if any(series.values()) else ())
            named.update({name} if series else ())
        return (wanted - fed) | (exported - named)

    exported = {
        metric.full_name + ("_count" if metric.kind is Kind.HISTOGRAM else "")
        for metric in METRICS
        if metric not in SESSIONS  # which are fed where there are sessions
    }
    idle = {"num_requests_waiting", "stage_queued_requests", "loop_lag_s"}
    passing = {
        *("num_requests_running", "stage_bound_requests", "transfer_unanswered_chunks"),
        *("stage_running_requests", "stage_waiting_requests"),
    }
    wanted = exported - {f"{PREFIX}{name}" for name in idle | passing}
    later = {f"{PREFIX}{name}" for name in ("kill_detect_s_count", "stage_restarts_total")}
    everything, wanted, exported = wanted, wanted - later, exported - later
    until_none(look)
    found = found_at(client)
    sent = total(found, "transfer_size_bytes_total", stage="one", target="two")
    assert sent >= 4 * RATE * SECONDS
    hops = total(found, "transfer_in_flight_s_count", stage="two", source="one")
    assert 0 < hops <= total(found, "transfer_chunks_total", stage="one", target="two")
    os.kill(client.server._omni.pids[ReplicaId(stage=1, replica=0)], signal.SIGKILL)
    wanted, exported = everything, exported | later
    until_none(look)


def until_none(missing: Callable[[], set[str]]) -> None:
    """Ask again until nothing is missing."""
    deadline = time.monotonic() + WAIT_S
    while found := missing():
        assert time.monotonic() < deadline, found


@pytest.mark.slow
def test_what_was_asked_is_what_was_counted(client: Client) -> None:
    """One request of half a second of audio, one mistake, one that was left."""
    failed = partial(total, name="requests_failed_total", reason="cancelled")
    until_none(lambda: set() if failed(found_at(client)) else {"cancelled"})
    found = found_at(client)
    assert total(found, "requests_success_total") == 1
    assert total(found, "requests_failed_total", reason="cancelled") >= 1
    assert total(found, "requests_failed_total", reason="invalid") == 1
    assert total(found, "audio_duration_s_total") == SECONDS
    assert total(found, "audio_streams_total", stage="two") == 1
    assert total(found, "audio_continuity_ok_total", threshold_ms="0") == 1
    assert total(found, "audio_underrun_s_sum", stage="two") == 0
    assert total(found, "e2e_request_latency_s_bucket", le="+Inf") >= 3


@pytest.mark.slow
def test_two_servers_count_for_themselves(client: Client, tmp_path: Path) -> None:
    """Nothing is shared in a process; OpenMetrics is spoken to who asks for it."""
    with serving(fake_plan([FakeStage(name="only", final="text")]), tmp_path) as other:
        found = found_at(other)
        assert total(found, "requests_success_total") == 0
        assert total(found, "stage_up", stage="only") == 1
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    _, headers, body = client.call(client._ask("GET", "/metrics", None, accept))
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_gaps_between_pieces_are_heard() -> None:
    """A late piece is a gap, time in hand is kept, and a gap is counted once."""
    played = Playback(10.0)
    for seconds, now in ((1.0, 10.0), (1.0, 10.5), (1.0, 12.25), (1.0, 13.0), (1.0, 15.0)):
        played.came(seconds, now)
    assert played.underrun_s == 0.25 + 0.75
    assert played.duration_s == 5.0


def test_names_are_told_apart_and_documented() -> None:
    """Each metric has a name of its own and says what it is."""
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(metric.doc and metric.doc[0].islower() for metric in METRICS if metric.doc[0] != "1")
