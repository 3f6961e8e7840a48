"""The messages about full-duplex sessions, which are part of the union in `messages`."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

MAX_NAME: Final = 256
"""Longest name of a request, or of a session."""
SessionName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
"""Name of a full-duplex session; the caller never gives one twice."""
_Text = Annotated[str, Meta(max_length=4096)]


class _Wire(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Base of what is sent, as for messages."""


class OpenSession(_Wire, frozen=True, kw_only=True, tag=50):
    """Keep state for a session from now on; answered by `SessionOpened`."""

    session: SessionName


class CloseSession(_Wire, frozen=True, kw_only=True, tag=51):
    """Forget a session, whether it was opened or not; answered by `SessionClosed`.

    Its turns were cancelled before.
    """

    session: SessionName


class SessionOpened(_Wire, frozen=True, kw_only=True, tag=52):
    """State is kept for a session, unless there is a fault."""

    session: SessionName
    fault: _Text | None = None


class SessionClosed(_Wire, frozen=True, kw_only=True, tag=53):
    """Nothing is kept for a session any more; with a fault something is, and it is to ask again."""

    session: SessionName
    fault: _Text | None = None


OfSession: TypeAlias = OpenSession | CloseSession | SessionOpened | SessionClosed
"""All of them."""
