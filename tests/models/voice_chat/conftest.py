"""The assembled checkpoint and its two generation modules, shared by all tests of a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from stagemesh.models.voice_chat import code2wav, talker
from stagemesh.models.voice_chat.checkpoint import assemble


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The checkpoint in the user's cache; the first session of a machine builds it."""
    torch.set_num_threads(1)
    cache = os.environ.get("STAGEMESH_CACHE") or Path.home() / ".cache" / "stagemesh"
    return assemble(Path(cache) / "voice_chat", progress=lambda _: None)


@pytest.fixture(scope="session")
def streaming_talker(checkpoint: Path) -> talker.Talker:
    """A talker that emits chunks."""
    return talker.load(checkpoint, args={}, async_chunk=True)


@pytest.fixture(scope="session")
def whole_talker(checkpoint: Path) -> talker.Talker:
    """A talker that emits one payload."""
    return talker.load(checkpoint, args={}, async_chunk=False)


@pytest.fixture(scope="session")
def streaming_code2wav(checkpoint: Path) -> code2wav.Code2Wav:
    """A code2wav that emits windows."""
    return code2wav.load(checkpoint, args={}, async_chunk=True)


@pytest.fixture(scope="session")
def whole_code2wav(checkpoint: Path) -> code2wav.Code2Wav:
    """A code2wav that emits one waveform."""
    return code2wav.load(checkpoint, args={}, async_chunk=False)
