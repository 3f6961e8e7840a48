"""A plug-in of a third party that cannot be loaded is an error that names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('boom')", "failed to load: RuntimeError('boom')"),
        ("AXIS = 1", "exports no `AXIS` of `stagemesh.spec.axis:Axis`"),
    ],
)
@pytest.mark.parametrize("command", [["list", "axes"], ["plan", "."]])
def test_a_plug_in_that_cannot_be_loaded_is_named(
    tmp_path: Path, command: list[str], text: str, reason: str
) -> None:
    """As data under `--json`, without a traceback, with exit code 1."""
    metadata = tmp_path / "broken-1.dist-info"
    metadata.mkdir()
    points = "[stagemesh.axes]\nbroken = broken_axis\n"
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
    (tmp_path / "broken_axis.py").write_text(text, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "stagemesh", *command, "--json"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    [found] = json.loads(done.stdout)["diagnostics"]
    assert found["message"] == f"plug-in `broken` (broken_axis) {reason}"
    assert found["code"] == "CF090"
    assert "remove the package" in found["help"]
