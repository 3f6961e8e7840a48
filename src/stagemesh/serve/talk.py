"""One full-duplex session as its client hears it, over one connection after another.

Every event has a number. Outputs are taken from the system when the client takes them, so that one
that does not read, or is away, holds no more than any other request would. What was sent is kept
for a while, for a client that comes back and says what it has seen last.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from aiohttp import web

from stagemesh.errors import StagemeshError
from stagemesh.plan.sessions import DuplexPlan
from stagemesh.runtime.core.replay import Replay
from stagemesh.runtime.running import Running
from stagemesh.runtime.session import Session
from stagemesh.serve import forms
from stagemesh.serve.forms import CancelForm, CloseForm, Json, TurnForm
from stagemesh.serve.spans import continued

_SPARE: Final = 4
"""Turns beyond those that may wait of which it can be told at the same time."""

Cut: TypeAlias = Callable[[], None]
"""Ends a connection at once."""
Work: TypeAlias = Coroutine[Any, Any, None]
"""What is to be told."""


def _nothing() -> None:
    return None


class Talk:
    """A session, its turns, and the connection of its client while there is one."""

    def __init__(self, session: Session, plan: DuplexPlan, over: Callable[[Talk], None]) -> None:
        """Begin without a connection; `over` is called when there is nothing more to say."""
        self.session: Final = session
        self.token: Final = secrets.token_urlsafe()
        self._plan: Final = plan
        self._over = over
        self._replay = Replay(plan.resume_replay_max_bytes_per_session, plan.resume_replay_ttl_s)
        self._loop = asyncio.get_running_loop()
        self._socket: web.WebSocketResponse | None = None
        self._cut: Cut = _nothing
        self._is_here = asyncio.Event()
        self._order = asyncio.Lock()
        self._room = asyncio.Semaphore(plan.max_pending_turns_per_session + _SPARE)
        self._turns: dict[str, Running] = {}
        self._done: OrderedDict[str, tuple[str, Json]] = OrderedDict()
        self._last: asyncio.Event | None = None
        self._num_turns = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ender = self._loop.create_task(self._end())

    async def greet(self, socket: web.WebSocketResponse, cut: Cut) -> None:
        """The first connection is there: tell where the session is."""
        self._join(socket, cut)
        resume = {"token": self.token, "within_s": self._plan.disconnect_grace_s}
        form = {
            "session": self.session.name,
            "group": self.session.group,
            "replicas": self.session.replicas,
            "resume": resume if self._plan.can_resume else None,
        }
        await self._say("opened", form)

    def missed(self, after: int | None) -> tuple[bytes, ...] | None:
        """What a client has missed that has seen event `after`; `None` when that is lost.

        One that does not say what it has seen has missed nothing.
        """
        number = self._replay.next - 1 if after is None else after
        return self._replay.after(number, self._loop.time())

    async def take_over(self, socket: web.WebSocketResponse, cut: Cut, after: int | None) -> None:
        """The client is back: repeat what it has missed, and go on.

        An earlier connection is cut first, whether it has ended or not: whoever has the token is
        the client.
        """
        self._cut()
        async with self._order:
            self._join(socket, cut)
            self.session.resume()
            for data in self.missed(after) or ():  # what was lost just now shows in the numbers
                await self._send(socket, data)

    def lost(self, socket: web.WebSocketResponse) -> None:
        """A connection has ended."""
        if self._socket is not socket:
            return  # another one has taken over
        self._leave()
        if self._plan.can_resume and self.session.end is None:
            self.session.disconnect()
        else:
            self.session.close()
            self.stop()

    async def hear(self, message: str | bytes, headers: Mapping[str, str]) -> None:
        """Do what the client says; waits while it has not taken in enough of what it was told."""
        await self._room.acquire()
        work = self._answer(message, headers)
        if work is None:
            self._room.release()
        else:
            task = self._loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._told)

    def stop(self) -> None:
        """Say nothing more."""
        for running in self._turns.values():
            running.close()
        for task in (*self._tasks, self._ender):
            task.cancel()
        self._over(self)

    # --- how -----------------------------------------------------------------------------------

    def _answer(self, message: str | bytes, headers: Mapping[str, str]) -> Work | None:
        """Do it, and return what is to be told of it."""
        try:
            said = forms.read_said(message)
        except StagemeshError as error:
            return self._fail(None, error)
        match said:
            case CloseForm():
                self.session.close()
            case CancelForm(id=name):
                if (running := self._turns.get(name)) is not None:
                    running.close()
            case TurnForm():
                return self._turn(said, headers)
        return None

    def _turn(self, form: TurnForm, headers: Mapping[str, str]) -> Work | None:
        name = form.id or f"turn-{self._num_turns}"
        self._num_turns += 1
        if name in self._turns:
            return None  # said again after a break: it was heard the first time
        if (done := self._done.get(name)) is not None:
            return self._say(*done)
        try:
            with continued(headers):
                running = self.session.submit(
                    forms.prompt_of(form.prompt),
                    sampling_params=form.sampling_params,
                    request_id=f"{self.session.name}/{name}",
                    timeout_s=form.timeout_s,
                )
        except StagemeshError as error:
            return self._fail(name, error)
        self._turns[name] = running
        before, self._last = self._last, asyncio.Event()
        return self._follow(name, running, before, self._last)

    async def _follow(
        self,
        name: str,
        running: Running,
        before: asyncio.Event | None,
        told: asyncio.Event,
    ) -> None:
        """Tell of a turn, once all has been told of the one before it."""
        try:
            if before is not None:
                await before.wait()
            try:
                async for output in running:
                    await self._say("output", {"id": name, **forms.output_form(output)})
                end = ("done", {"id": name, **forms.end_form(running)})
            except StagemeshError as error:
                end = ("failed", {"id": name, **forms.error_form(error)})
            self._done[name] = end
            if len(self._done) > self._plan.completed_append_cache_size:
                self._done.popitem(last=False)
            del self._turns[name]
            await self._say(*end)
        finally:
            running.close()
            told.set()

    async def _fail(self, name: str | None, error: StagemeshError) -> None:
        await self._say("failed", {"id": name, **forms.error_form(error)})

    def _told(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled():
            task.result()

    async def _end(self) -> None:
        """Tell of the end once everything else has been told; nobody may be there to hear it."""
        end = await self.session.ended()
        if self._socket is None:
            self.stop()
            return
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._say("closed", {"reason": end.over.value, **forms.error_form(end.error)})
        if self._socket is not None:
            await self._socket.close()
        self._over(self)

    async def _say(self, kind: str, form: Json) -> None:
        """Send an event, once somebody is there; a break on the way leaves it to be repeated."""
        while True:
            await self._is_here.wait()
            async with self._order:
                if self._socket is not None:
                    number = self._replay.next
                    data = forms.document({"type": kind, "number": number, **form})
                    self._replay.sent(data, self._loop.time())
                    await self._send(self._socket, data)
                    return

    async def _send(self, socket: web.WebSocketResponse, data: bytes) -> None:
        try:
            await socket.send_str(data.decode())
        except ConnectionError:
            self.lost(socket)

    def _join(self, socket: web.WebSocketResponse, cut: Cut) -> None:
        self._socket = socket
        self._cut = cut
        self._is_here.set()

    def _leave(self) -> None:
        self._socket = None
        self._is_here.clear()
