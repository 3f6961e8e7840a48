"""The assembled checkpoint and its two generation modules, shared by all tests of a session."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stagemesh.config.environment import cache_folder
from stagemesh.models.voice_chat import code2wav, talker
from stagemesh.models.voice_chat.checkpoint import assemble
from tests.models.voice_chat.driving import code2wav_context, talker_context


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The checkpoint in the user's cache; the first session of a machine builds it."""
    torch.set_num_threads(1)
    return assemble(cache_folder() / "voice_chat", progress=lambda _: None)


@pytest.fixture(scope="session")
def streaming_talker(checkpoint: Path) -> talker.Talker:
    """A talker that emits chunks."""
    return talker.load(talker_context(checkpoint, async_chunk=True))


@pytest.fixture(scope="session")
def whole_talker(checkpoint: Path) -> talker.Talker:
    """A talker that emits one payload."""
    return talker.load(talker_context(checkpoint, async_chunk=False))


@pytest.fixture(scope="session")
def streaming_code2wav(checkpoint: Path) -> code2wav.Code2Wav:
    """A code2wav that emits windows."""
    return code2wav.load(code2wav_context(checkpoint, async_chunk=True))


@pytest.fixture(scope="session")
def whole_code2wav(checkpoint: Path) -> code2wav.Code2Wav:
    """A code2wav that emits one waveform."""
    return code2wav.load(code2wav_context(checkpoint, async_chunk=False))
