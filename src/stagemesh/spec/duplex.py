"""What a model can do in full-duplex sessions, which a plan has to know before anything starts."""

from __future__ import annotations

from stagemesh.spec.frozen import frozen


@frozen
class DuplexModel:
    """The duplex half of a pipeline: where it is implemented and what it can do."""

    plugin: str
    """Reference of the implementation, or its dotted path where it is not written yet."""
    default_session_mode: str = "turn"
    """`duplex` or `turn`, where the deploy file does not say."""
    supports_session_resume: bool = True
    """Whether a session survives a new connection; such models have one frontend."""
    supports_concurrent_sessions: bool = False
    """Whether one replica can hold several sessions at once."""
    supports_duplex_mrv2: bool = False
    """Whether stages of model runner `v2` take duplex sessions."""
