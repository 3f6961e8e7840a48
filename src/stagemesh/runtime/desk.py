"""The sessions of a frontend, or what stands in their place where requests take turns."""

from __future__ import annotations

from typing import Final, TypeAlias

from stagemesh.errors import SessionModeError
from stagemesh.plan.values import Plan
from stagemesh.runtime.calls import Calls
from stagemesh.runtime.messages import ProtocolError
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Call
from stagemesh.runtime.session import Session, SessionCounts
from stagemesh.runtime.session_messages import SessionClosed, SessionOpened
from stagemesh.runtime.sessions import Choose, Post, SessionDesk


class NoDesk:
    """Where requests take turns: there are no sessions, and nothing is to be done for any."""

    counts: Final = SessionCounts()

    async def open(self, calls: Calls, timeout_s: float | None) -> Session:
        """Raise `SessionModeError`."""
        del calls, timeout_s
        raise SessionModeError("this system takes requests one by one, and has no sessions")

    def answered(self, where: ReplicaId, answer: SessionOpened | SessionClosed) -> None:
        """Raise `ProtocolError`."""
        del where
        raise ProtocolError(f"a stage does not say `{type(answer).__name__}`")

    def check(self, call: Call) -> None:
        """Every request is welcome."""

    def begun(self, call: Call) -> None:
        """No session waits for it."""

    def settled(self, call: Call) -> None:
        """No session waits for it."""

    def joined(self, where: ReplicaId) -> None:
        """Nothing is placed on it."""

    def held(self, where: ReplicaId) -> None:
        """Nothing is placed on it."""

    def died(self, where: ReplicaId, reason: str) -> None:
        """Nothing was placed on it."""

    def close_all(self) -> None:
        """There are none."""


Desk: TypeAlias = SessionDesk | NoDesk
"""The sessions of a frontend, if its plan has any."""


def desk_of(plan: Plan, frontend: int, post: Post, choose: Choose) -> Desk:
    """Return the sessions of that frontend of a plan."""
    duplex = plan.session.duplex
    return NoDesk() if duplex is None else SessionDesk(plan, duplex, frontend, post, choose)
