"""One model on several hosts, which are addresses of this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.config.environment import TOKEN
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.launchers.starts import SECRET, Starts

PLAN = fake_plan(three_stages())


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, SECRET)


def test_three_starts_make_one_pipeline(tmp_path: Path) -> None:
    """The head runs the first stage, two others the rest; all end with the head."""
    with Starts(PLAN, tmp_path) as starts:
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
