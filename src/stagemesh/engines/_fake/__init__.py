"""The running half of the `fake` engine: on one rank, and on several that watch one another."""

from stagemesh.engines._fake.engine import EXIT_CODE, FakeEngine
from stagemesh.engines._fake.ranks import fake_engine

__all__ = ["EXIT_CODE", "FakeEngine", "fake_engine"]
