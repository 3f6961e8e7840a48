"""A pipeline on a real Ray cluster."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.leaks import marked
from tests.runtime.started import wait_for_exit
from tests.waiting import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # half a minute of two quiet cores

ROOT = Path(__file__).parents[3]


@pytest.fixture
def short() -> Iterator[str]:
    """A folder with a short name, since Ray makes sockets in it."""
    folder = tempfile.mkdtemp(prefix="ray")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_stages_and_ranks_run_on_two_nodes_come_back_and_leave_nothing(short: str) -> None:
    """An actor of a rank that is killed fails its request, as Ray says, and all come back."""
    marker = secrets.token_hex()
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.launchers.ray_scene"],
        cwd=ROOT,
        env={**os.environ, "RAY_TMPDIR": short, "SCENE": marker},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    error = told.pop("error")
    assert told == {
        "outputs": 6,
        "nodes": ["127.0.0.2", "127.0.0.3"],
        "processes": 5,
        "own": ["red", "secret-of-the-hub", None],
        "again": 6,
        "joined": False,
        "left": 0,
        "groups": ["REMOVED"],
    }
    assert error["text"].startswith("stage `talker` replica `0` rank `")
    assert "` has lost its Ray actor `" in error["text"]
    assert "on node `127.0.0.3`, says Ray: The actor is dead because its worker" in error["text"]
    for pid in marked(marker):
        wait_for_exit(pid)
    logs = "".join(
        path.read_text(errors="replace")
        for path in Path(short).rglob("*")
        if path.is_file() and path.stat().st_size < 10_000_000
    )
    assert "127.0.0.3" in logs
    assert "secret-of-the-hub" not in logs
