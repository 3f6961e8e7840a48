"""A process that is told to end: what runs ends first, and a second word ends everything."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stagemesh.plan.save import to_json
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.runtime.started import wait_for_exit
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

PLAN = fake_plan([FakeStage(name="only", final="text", args={"num_outputs": 3})])
SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from stagemesh.errors import StagemeshError
from stagemesh.plan.save import from_json
from stagemesh.runtime.health import SystemState
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.signals import run_until_signal

async def ask(omni, params):
    try:
        return (await omni.run("hi", sampling_params={"only": params})).text
    except StagemeshError as error:
        return f"{type(error).__name__}: {error}"

async def main():
    omni = AsyncOmni(from_json(Path(sys.argv[1]).read_text()))
    await omni.start()
    running = asyncio.ensure_future(ask(omni, json.loads(sys.argv[2])))
    serving = asyncio.ensure_future(run_until_signal(omni))
    await asyncio.sleep(0)
    print(json.dumps(list(omni.pids.values())), flush=True)
    while omni.health().state is SystemState.SERVING:
        await asyncio.sleep(0.01)
    print(omni.health().state.value, await ask(omni, {}), flush=True)
    await serving
    print(omni.health().state.value, await running, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("params", "signals", "said"),
    [
        ({"delay_steps": 30_000}, 1, "stopped hi#0hi#1hi#2"),
        (
            {"fail_at": "stall"},
            2,
            "stopped ClosedError: the system was closed while the request ran",
        ),
    ],
    ids=["a request that ends", "a request that does not, and a second signal"],
)
def test_running_requests_may_end_until_the_second_signal(
    params: dict[str, object], signals: int, said: str, tmp_path: Path
) -> None:
    """The first one takes no more requests; nothing is left, and the exit is orderly."""
    (tmp_path / "plan.json").write_text(to_json(PLAN))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "plan.json"), json.dumps(params)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            pids = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            refused = process.stdout.readline()
            assert refused.startswith("draining ClosedError: the system takes no more requests")
            for _ in range(signals - 1):
                process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert (rest.strip(), process.returncode) == (said, 0)
    for pid in pids:
        wait_for_exit(pid)
