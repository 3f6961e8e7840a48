"""Streams that are left in the middle leave nothing behind; the long form is a benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import WAIT_S

NOISE_BYTES = 16 * 1024 * 1024
"""What four processes may have grown by the end of a run, however short."""
MOST_BYTES = 4 * 1024
"""Per stream beyond that: a tenth of what was once published."""


@pytest.mark.parametrize(
    "streams",
    [
        pytest.param(500, marks=[pytest.mark.slow]),
        pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)]),
    ],
)
def test_left_streams_leave_no_descriptor_and_no_memory(streams: int) -> None:
    """Neither in the caller nor in any stage."""
    script = Path(__file__).parents[2] / "benchmarks" / "aborted_streams.py"
    command = [sys.executable, str(script), str(streams)]
    limit = WAIT_S * max(1, streams // 500)
    run = subprocess.run(command, timeout=limit, check=True, capture_output=True, text=True)
    found = json.loads(run.stdout)
    assert set(found["grown_descriptors"].values()) == {0}, found
    assert sum(found["grown_bytes"].values()) < NOISE_BYTES + streams * MOST_BYTES, found
