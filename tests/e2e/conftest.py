"""The assembled checkpoint and a running `voice_chat`, shared by the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stagemesh import Omni
from stagemesh.config.environment import cache_folder
from stagemesh.models.voice_chat.checkpoint import assemble


@pytest.fixture(scope="session")
def voice_chat() -> Path:
    """The checkpoint in the user's cache; the first session of a machine builds it."""
    return assemble(cache_folder() / "voice_chat", progress=lambda _: None)


@pytest.fixture(scope="session")
def chunked(voice_chat: Path) -> Iterator[Omni]:
    """A running pipeline that hands over chunks."""
    with Omni(str(voice_chat)) as omni:
        yield omni


@pytest.fixture(scope="session")
def whole(voice_chat: Path) -> Iterator[Omni]:
    """A pipeline that hands over whole payloads, in one process, which is cheaper to start."""
    shared = {guest: {"colocate_with": "thinker"} for guest in ("talker", "code2wav")}
    with Omni(str(voice_chat), async_chunk=False, stage_overrides=shared) as omni:
        yield omni
