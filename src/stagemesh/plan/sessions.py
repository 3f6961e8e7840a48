"""How a pipeline serves: in turns or in full-duplex sessions, and which frontend holds which."""

from __future__ import annotations

from typing import Literal

from stagemesh.spec.frozen import frozen


@frozen
class GroupPlan:
    """One replica of every stage, which a session takes together."""

    replicas: tuple[int, ...]
    """The replica of each stage, by ascending stage id."""
    frontend: int
    """The frontend that places sessions in it."""


@frozen
class FrontendPlan:
    """One frontend and the sessions that it may hold."""

    groups: tuple[int, ...]
    """Groups that it owns, by number; none where sessions take no groups."""
    quota: int
    """Its share of `max_sessions`."""
    capacity: int
    """Sessions that it can hold at most: its share, within what its replicas hold."""


@frozen
class DuplexPlan:
    """Placement, limits and life of full-duplex sessions."""

    replica_policy: Literal["legacy", "least_sessions"]
    """Whether a session takes a group of replicas when it opens (`least_sessions`)."""
    max_sessions: int
    """Most sessions at once, those that open or close included."""
    max_sessions_per_replica: int | None
    """Most sessions of one replica; `None` where sessions take no groups."""
    groups: tuple[GroupPlan, ...]
    """Groups of replicas in the order of their numbers; none where sessions take no groups."""
    frontends: tuple[FrontendPlan, ...]
    """Frontends in the order of their numbers."""
    idle_ttl_s: float | None
    """Seconds without input after which a session is closed; `None` for never."""
    disconnect_grace_s: float
    """Seconds that a session waits for its client to come back."""
    reaper_interval_s: float
    """Seconds between two looks for sessions that are over."""
    resume_replay_ttl_s: float
    """Seconds that sent output is kept for a client that comes back."""
    resume_replay_max_bytes_per_session: int
    """Most bytes of kept output."""
    max_pending_input_bytes_per_session: int
    """Most bytes of input that wait to be computed."""
    max_pending_turns_per_session: int
    """Most turns that wait to be computed."""
    completed_append_cache_size: int
    """Inputs whose answer is kept, so that sending one again changes nothing."""
    server_vad_model_path: str | None
    """Model that finds out where speech begins and ends."""
    warmup_frames: int
    """Frames that are computed before the first session; below `0` for none of any kind."""
    can_resume: bool
    """Whether the model's sessions outlive the connection of their client."""

    @property
    def worker_sessions(self) -> int:
        """Sessions that each replica is told to be ready for."""
        per_replica = self.max_sessions_per_replica
        return self.max_sessions if per_replica is None else per_replica


@frozen
class SessionPlan:
    """How the pipeline serves."""

    mode: Literal["turn", "duplex"] = "turn"
    """Whether sessions take turns or speak both ways at once."""
    duplex: DuplexPlan | None = None
    """Its full-duplex sessions; `None` where they take turns."""
