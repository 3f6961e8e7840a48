"""The pools of ranks end with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _end_of_pools() -> Iterator[None]:
    yield
    from tests.parallel.pool import close_pools  # noqa: PLC0415  other tests need no torch

    close_pools()
