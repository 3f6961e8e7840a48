"""A full-duplex session as its user holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Final, Protocol

from stagemesh.errors import ClosedError, StagemeshError
from stagemesh.runtime.calls import REQUEST_S, Calls, Prompt
from stagemesh.runtime.params import SamplingParams
from stagemesh.runtime.running import Call, OnProgress, Running
from stagemesh.spec.frozen import frozen


class SessionOver(Enum):
    """Why a session is over."""

    CLIENT = "client"
    """Its user has closed it."""
    IDLE = "idle"
    """Nothing has come from its user for too long."""
    DISCONNECTED = "disconnected"
    """Its user has not come back in time."""
    FAILED = "failed"
    """A replica that it was on is gone, or a stage could not open it."""
    SHUTDOWN = "shutdown"
    """The system is closed."""


@frozen
class SessionEnd:
    """How a session has ended."""

    over: SessionOver
    """Why."""
    error: StagemeshError
    """What its turns are failed with: where a stage is to blame it says which, and the cause."""


@frozen
class SessionCounts:
    """The sessions of a system, now and so far."""

    states: Mapping[str, int] = field(default_factory=dict)
    """How many there are, by what they do; those that open or close hold a place as well."""
    opened: int = 0
    """Sessions that every stage has taken."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Sessions and turns that were not taken, by reason."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Sessions that are over, by reason."""


class Holder(Protocol):
    """Whoever holds sessions, by their names."""

    def submit(self, name: str, call: Call) -> Running:
        """Start a turn."""
        ...

    def present(self, name: str, *, is_here: bool) -> None:
        """Hear whether the user is there."""
        ...

    def close(self, name: str, end: SessionEnd) -> None:
        """End a session."""
        ...


class Session:
    """One replica of every stage, held from turn to turn; close it in any case."""

    def __init__(self, name: str, group: int | None, holder: Holder, calls: Calls) -> None:
        """It is opening."""
        self.name: Final = name
        self.group: Final = group
        """Number of its group of replicas; `None` where sessions take no groups."""
        self.replicas: Mapping[str, int] = {}
        """The replica that it holds, by name of the stage."""
        self._holder = holder
        self._calls = calls
        self._end: SessionEnd | None = None
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[SessionEnd] = loop.create_future()
        self._clean: asyncio.Future[None] = loop.create_future()

    @property
    def end(self) -> SessionEnd | None:
        """How it has ended, once it has."""
        return self._end

    def submit(
        self,
        prompt: Prompt,
        *,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        timeout_s: float | None = REQUEST_S,
        on_progress: OnProgress | None = None,
    ) -> Running:
        """Start a turn, which begins when those before it are done; close what is returned.

        Closing it leaves the turn, not the session. Raises `DiagnosticError` for what is wrong with
        it, `SessionRefusedError` when too much waits to be computed, `ClosedError` when the session
        is over, and `RequestError` when it cannot be taken for another reason.
        """
        if self._end is not None:
            raise ClosedError(f"the session is over: {self._end.error}")
        call = self._calls.of(prompt, sampling_params, request_id, timeout_s, on_progress)
        return self._holder.submit(self.name, call)

    def disconnect(self) -> None:
        """The user's connection has ended: he has the plan's `disconnect_grace_s` to come back."""
        self._holder.present(self.name, is_here=False)

    def resume(self) -> None:
        """The user is back."""
        self._holder.present(self.name, is_here=True)

    def close(self) -> None:
        """End it: its turns are cancelled. Calling it again does nothing."""
        error = ClosedError("the session was closed")
        self._holder.close(self.name, SessionEnd(over=SessionOver.CLIENT, error=error))

    async def ended(self) -> SessionEnd:
        """Wait until it is over, whoever ends it, and say why."""
        return await asyncio.shield(self._over)

    async def cleaned(self) -> None:
        """Wait until no stage keeps anything of it, and its place is free."""
        await asyncio.shield(self._clean)

    # --- for its holder ------------------------------------------------------------------------

    def over(self, end: SessionEnd) -> None:
        """It is over."""
        self._end = end
        self._over.set_result(end)

    def gone(self) -> None:
        """No stage keeps anything of it."""
        self._clean.set_result(None)
