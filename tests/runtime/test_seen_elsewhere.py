"""What has gone wrong in systems like this one, as far as no other file would notice it here."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.errors import StageFailedError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.runtime.omni import Omni
from stagemesh.runtime.outputs import StageState
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.leaks import children, memory_files
from tests.runtime.started import Started, Watch
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

TEXT = "hi#0hi#1hi#2"


def test_a_stage_that_others_end_in_order_fails_its_requests_as_well() -> None:
    """An exit by SIGTERM is an end that nobody here has asked for: its requests do not wait."""
    stages = [replace(each, recovery=RecoveryPlan(restart_delay=0.0)) for each in three_stages()]
    with Started(fake_plan(stages)) as started:

        async def run() -> None:
            watch = Watch()
            stall = {"talker": {"fail_at": "stall", "fail_step": 1}}
            asked = asyncio.ensure_future(
                started.omni.run("hi", sampling_params=stall, on_progress=watch)
            )
            await watch.until("talker", StageState.RUNNING)
            os.kill(started.pid(1), signal.SIGTERM)
            with pytest.raises(
                StageFailedError, match="`talker` replica `0` was killed by SIGTERM"
            ):
                await asked
            await started.until_serving()
            assert (await started.omni.run("hi")).text == TEXT

        started.call(run())


def test_stages_outlive_the_thread_that_has_started_them() -> None:
    """A death signal would come at the end of that thread, whatever becomes of its process."""
    systems: list[Omni] = []
    thread = threading.Thread(target=lambda: systems.append(Omni(fake_plan(three_stages()))))
    thread.start()
    thread.join(WAIT_S)
    [omni] = systems
    with omni:
        pids = dict(omni.pids)
        assert [result.text for result in omni.generate(["hi", "hi"])] == [TEXT, TEXT]
        assert dict(omni.pids) == pids


def test_payloads_between_stages_do_not_pass_the_caller() -> None:
    """It holds no memory of theirs, and that of what it is given itself alone."""
    others = memory_files(os.getpid())
    thinker, talker, vocoder = three_stages()
    large = {"num_outputs": 3, "output_bytes": 2_000_000}
    plan = fake_plan([replace(thinker, final=None, args=large), talker, vocoder])
    with Started(plan) as started:
        outputs = started.run().outputs
        assert [len(each.payload.buffers[0].data) for each in outputs] == [2_000_000] * 3
        own = memory_files(os.getpid()) - others
        between = memory_files(started.pid(0)) & memory_files(started.pid(1))
        last = memory_files(started.pid(2))
        assert between
        assert not own & between
        assert own <= last


def test_stages_overlap() -> None:
    """The first one works for the next request while the second has the one before it."""
    thinker, talker, vocoder = three_stages()
    one_each = [replace(each, args={**each.args, "max_num_seqs": 1}) for each in (thinker, talker)]
    with Started(fake_plan([*one_each, vocoder])) as started:

        async def run() -> None:
            first, second = Watch(), Watch()
            stall = {"talker": {"fail_at": "stall"}}
            held = started.omni.submit("hi", sampling_params=stall, on_progress=first)
            after = started.omni.submit("hi", on_progress=second)
            try:
                await second.until("thinker", StageState.FINISHED)
                ended = [news.stage for news in first.heard if news.state is StageState.FINISHED]
                assert "talker" not in ended
            finally:
                held.close()
                after.close()

        started.call(run())


def test_a_rank_knows_its_number_from_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says of ranks: that of all of them is the same."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    thinker, talker, vocoder = three_stages()
    only_at_1 = {"fail_at": "exit", "at_rank": 1}
    with Started(fake_plan([thinker, replace(talker, ranks=2), vocoder])) as started:
        assert started.run().text == TEXT
        with pytest.raises(StageFailedError, match="`talker` replica `0` rank `1` exited"):
            started.run(params={"talker": only_at_1})


def test_every_process_says_which_rank_of_which_replica_it_is() -> None:
    """To whoever lists processes."""
    before = children()
    thinker, talker, vocoder = three_stages(talker=(2, "round_robin"))
    with Started(fake_plan([thinker, replace(talker, ranks=2), vocoder])):
        words = [
            Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").rstrip("\0").split("\0")
            for pid in children() - before
        ]
    assert sorted(each[-1] for each in words) == [
        "talker/0/0",
        "talker/0/1",
        "talker/1/0",
        "talker/1/1",
        "thinker/0/0",
        "vocoder/0/0",
    ]
