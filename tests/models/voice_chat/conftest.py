"""The assembled checkpoint and its two generation modules, shared by all tests of a session.

Nothing heavy is imported before one of them is asked for: fast tests do without torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stagemesh.config.environment import cache_folder
from stagemesh.models.voice_chat.checkpoint import assemble

if TYPE_CHECKING:
    from stagemesh.models.voice_chat.code2wav import Code2Wav
    from stagemesh.models.voice_chat.talker import Talker


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The checkpoint in the user's cache; the first session of a machine builds it."""
    import torch  # noqa: PLC0415  heavy

    torch.set_num_threads(1)
    return assemble(cache_folder() / "voice_chat", progress=lambda _: None)


@pytest.fixture(scope="session")
def streaming_talker(checkpoint: Path) -> Talker:
    """A talker that emits chunks."""
    return _talker(checkpoint, async_chunk=True)


@pytest.fixture(scope="session")
def whole_talker(checkpoint: Path) -> Talker:
    """A talker that emits one payload."""
    return _talker(checkpoint, async_chunk=False)


@pytest.fixture(scope="session")
def streaming_code2wav(checkpoint: Path) -> Code2Wav:
    """A code2wav that emits windows."""
    return _code2wav(checkpoint, async_chunk=True)


@pytest.fixture(scope="session")
def whole_code2wav(checkpoint: Path) -> Code2Wav:
    """A code2wav that emits one waveform."""
    return _code2wav(checkpoint, async_chunk=False)


def _talker(checkpoint: Path, *, async_chunk: bool) -> Talker:
    from stagemesh.models.voice_chat import talker  # noqa: PLC0415  heavy
    from tests.models.voice_chat.driving import talker_context  # noqa: PLC0415  heavy

    return talker.load(talker_context(checkpoint, async_chunk=async_chunk))


def _code2wav(checkpoint: Path, *, async_chunk: bool) -> Code2Wav:
    from stagemesh.models.voice_chat import code2wav  # noqa: PLC0415  heavy
    from tests.models.voice_chat.driving import code2wav_context  # noqa: PLC0415  heavy

    return code2wav.load(code2wav_context(checkpoint, async_chunk=async_chunk))
