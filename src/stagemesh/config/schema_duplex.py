"""The keys of `duplex_session`: types and bounds; what they mean together is a rule of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from stagemesh.config.check import Pattern
from stagemesh.config.kind_fields import Amount, Count
from stagemesh.config.patch import NULL_IS_A_VALUE
from stagemesh.config.told_once import TOLD_ONCE
from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen

Seconds: TypeAlias = Annotated[float, Range(minimum=0.001)]
"""A span of time."""

StageNumber: TypeAlias = (
    Amount
    | Annotated[
        str,
        Pattern(
            regex="0|[1-9][0-9]{0,8}",
            example="0",
            remedy="keys are numbers of stages, not their names: `{0: 0, 1: 0}`",
        ),
    ]
)
"""Number of a stage as the key of a mapping, which JSON can only write as text."""

ReplicaGroup: TypeAlias = Mapping[StageNumber, Amount]
"""A replica of every stage."""


@frozen
class DuplexSession:
    """Life, limits and placement of full-duplex sessions."""

    idle_ttl_s: Annotated[Seconds | None, NULL_IS_A_VALUE] = 300.0
    """Seconds without input after which a session is closed; `null` for never."""
    disconnect_grace_s: Seconds = 30.0
    """Seconds that a session waits for its client to come back."""
    reaper_interval_s: Seconds = 5.0
    """Seconds between two looks for sessions that are over."""
    resume_replay_ttl_s: Seconds = 60.0
    """Seconds that sent output is kept for a client that comes back."""
    resume_replay_max_bytes_per_session: Count = 8 * 2**20
    """Most bytes of kept output."""
    max_pending_input_bytes_per_session: Count = 16 * 2**20
    """Most bytes of input that wait to be computed."""
    max_pending_turns_per_session: Count = 4
    """Most turns that wait to be computed."""
    max_sessions: Count = 1
    """Most sessions at once, those that open or close included."""
    completed_append_cache_size: Count = 256
    """Inputs whose answer is kept, so that sending one again changes nothing."""
    server_vad_model_path: Annotated[str, Pattern(regex=".+", example="/models/vad")] | None = None
    """Model that finds out where speech begins and ends."""
    warmup_frames: int = 0
    """Frames that are computed before the first session; below `0` for none of any kind."""
    replica_policy: Literal["legacy", "least_sessions"] = "legacy"
    """Whether a session takes a group of replicas when it opens (`least_sessions`)."""
    max_sessions_per_replica: Count | None = None
    """Most sessions of one replica, for `least_sessions`."""
    replica_groups: Annotated[tuple[ReplicaGroup, ...] | None, TOLD_ONCE] = None
    """Groups of replicas, each a mapping from number of stage to replica."""

    @property
    def groups(self) -> tuple[Mapping[int, int], ...] | None:
        """The groups with stages as numbers, however they were written."""
        if self.replica_groups is None:
            return None
        return tuple(
            {int(stage): replica for stage, replica in group.items()}
            for group in self.replica_groups
        )
