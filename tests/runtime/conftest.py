"""Started systems, shared where a test does not break them.

What a test has left in them is gone before the next one begins: what a stage still has to say about
a request that was left would else change routes, descriptors and memory under another test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started


@pytest.fixture(scope="session")
def shared_streaming() -> Iterator[Started]:
    """The one that `streaming` gives to every test."""
    with Started(fake_plan(three_stages())) as started:
        yield started


@pytest.fixture
def streaming(shared_streaming: Started) -> Iterator[Started]:
    """Three stages, one replica each, that hand over chunks."""
    yield shared_streaming
    shared_streaming.settle()


@pytest.fixture(scope="session")
def shared_replicated() -> Iterator[Started]:
    """The one that `replicated` gives to every test."""
    stages = three_stages(
        thinker=(2, "round_robin"), talker=(2, "random"), vocoder=(2, "least_queue")
    )
    with Started(fake_plan(stages)) as started:
        yield started


@pytest.fixture
def replicated(shared_replicated: Started) -> Iterator[Started]:
    """Three stages, two replicas each, one policy per stage."""
    yield shared_replicated
    shared_replicated.settle()
