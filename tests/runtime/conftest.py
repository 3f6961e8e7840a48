"""Started systems, shared where a test does not break them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started


@pytest.fixture(scope="session")
def streaming() -> Iterator[Started]:
    """Three stages, one replica each, that hand over chunks."""
    with Started(fake_plan(three_stages())) as started:
        yield started


@pytest.fixture(scope="session")
def replicated() -> Iterator[Started]:
    """Three stages, two replicas each, one policy per stage."""
    stages = three_stages(
        thinker=(2, "round_robin"), talker=(2, "random"), vocoder=(2, "least_queue")
    )
    with Started(fake_plan(stages)) as started:
        yield started
