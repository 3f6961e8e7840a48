"""Streams that are left in the middle leave nothing behind; the long form is a benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.started import WAIT_S

MOST_BYTES = 4 * 1024
"""Per stream: a tenth of what was once published, and the noise of short runs."""


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
    assert found["grown_bytes_per_stream"] < MOST_BYTES, found
