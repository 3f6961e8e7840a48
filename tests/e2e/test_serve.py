"""`stagemesh serve` as a person uses it: a question over HTTP, spoken; then Ctrl-C."""

from __future__ import annotations

import base64
import json
import signal
import urllib.request
import uuid
from pathlib import Path

import pytest

from tests.e2e import leaks
from tests.e2e.test_command import QUESTION, command
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow


def test_a_question_over_http_is_answered_aloud_and_ctrl_c_stops_everything(
    voice_chat: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Text, then chunks of audio, then the report; nothing of the server is left afterwards."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    marker = uuid.uuid4().hex
    with command(["serve", str(voice_chat), "--port", "0"], marker) as process:
        try:
            assert process.stderr is not None
            told = next(line for line in process.stderr if line.startswith("serving at"))
            url = told.split()[2].rstrip(",")
            body = json.dumps({"prompt": QUESTION, "stream": False}).encode()
            with urllib.request.urlopen(f"{url}/v1/generate", body, timeout=WAIT_S) as answer:  # noqa: S310  our own server
                document = json.load(answer)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert err.endswith("stopped\n")
    assert not leaks.marked(marker)
    assert not list(tmp_path.rglob("*.sock"))
    outputs = document["outputs"]
    text = "".join(
        one["payload"]["meta"].get("text", "") for one in outputs if one["kind"] == "text"
    )
    assert "Paris" in text
    sound = [one["payload"]["buffers"] for one in outputs if one["kind"] == "audio"]
    samples = sum(len(base64.b64decode(buffers[0]["data"])) for buffers in sound if buffers) // 4
    assert samples > 22050
