"""What actors are to run, as it travels to them. Some of it is secret, which is never shown."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from stagemesh.runtime.launchers.far_rank import RankLinks


class _Work(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all of it has."""

    plan: str
    """The head's plan in its saved form."""
    stage: int
    """The stage."""
    replica: int
    """The replica."""
    master: tuple[str, int]
    """Where somebody listens for the process."""
    token: bytes
    """What is to be heard there."""
    environment: dict[str, str]
    """Variables of the process; some are secrets."""


class Job(_Work, frozen=True, kw_only=True, tag="replica"):
    """A replica's own process, for the head; it is its rank 0."""

    ranks: tuple[RankLinks, ...] = ()
    """Further ranks, where other actors keep these; else this one does."""

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"Job(stage={self.stage}, replica={self.replica})"


class RankJob(_Work, frozen=True, kw_only=True, tag="rank"):
    """The process of a further rank, for the keeper of its rank 0."""

    rank: int
    """Its number."""
    links: RankLinks
    """The streams to there."""

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"RankJob(stage={self.stage}, replica={self.replica}, rank={self.rank})"


_decoder: Final = msgspec.msgpack.Decoder(Job | RankJob)


def encode(job: Job | RankJob) -> bytes:
    """Return a job as bytes."""
    return msgspec.msgpack.encode(job)


def decode(data: bytes) -> Job | RankJob:
    """Return the job of such bytes."""
    return _decoder.decode(data)
