"""`python -m stagemesh.serve.frontends.main CONTROL DOOR`: the process of one frontend of several.

Both are descriptors: of the stream to the parent, which says everything else, and of the socket to
listen on. Signals for the whole server are the parent's affair, who says what follows from them.
The end of its stream ends this process at once, and with it its stages.
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import logging
import signal
import socket
import sys
from typing import Final

from aiohttp import web

from stagemesh.errors import DiagnosticError, StagemeshError, StartupError
from stagemesh.plan.save import from_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.descriptors import raise_file_limit
from stagemesh.runtime.own_end import crash, end_group
from stagemesh.runtime.transport.token import Secret
from stagemesh.serve.frontends.words import (
    Begin,
    Failed,
    Flaw,
    Link,
    Look,
    Ping,
    Pong,
    Reading,
    Ready,
    Restore,
    Restored,
    Seen,
    Stop,
    Tell,
    Told,
    Word,
)
from stagemesh.serve.logs import FORMATS, RequestLog
from stagemesh.serve.metrics import Metrics
from stagemesh.serve.server import OneOfSeveral, ServeOptions, Server
from stagemesh.serve.state import state_form

_DEBUG: Final = "frontend %(frontend)s: %(name)s: %(message)s"


def main() -> int:
    """Serve until told to stop; the exit code is 0 when that was so."""
    faulthandler.enable()
    raise_file_limit()
    control, door = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
    return asyncio.run(_serve(control, door))


async def _serve(control: socket.socket, door: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: None)  # ignored, but not by those it starts
    link = await Link.over(control)
    begin = await link.hear()
    if not isinstance(begin, Begin):
        return 1  # the parent has gone
    show_log(begin)
    frontend = Frontend(begin, door, link)
    listening = asyncio.ensure_future(frontend.listen())
    listening.add_done_callback(_deaf)
    try:
        await frontend.server.run(lambda _: link.say(Ready()))
    except StagemeshError as error:
        link.say(failed_of(error))
        await link.flush()
        return 1
    finally:
        listening.cancel()
    return 0


def _deaf(listening: asyncio.Task[None]) -> None:
    """A fault of our own: who no longer hears his parent is worse than who has died."""
    if not listening.cancelled():
        told: dict[str, object] = {
            "message": "a frontend is deaf",
            "exception": listening.exception(),
        }
        crash(listening.get_loop(), told)


class Frontend:
    """A server, and what the parent says to it."""

    def __init__(self, begin: Begin, door: socket.socket, link: Link) -> None:
        plan = from_json(begin.plan)
        assert isinstance(plan, Plan), "the parent has made it"
        options = ServeOptions(
            key=Secret(token=begin.key),
            queue_limit=begin.queue_limit,
            max_request_bytes=begin.max_request_bytes,
            max_unread_bytes=begin.max_unread_bytes,
        )
        self._link = link
        self._watch = AskingWatch(link)
        place = OneOfSeveral(frontend=begin.frontend, door=door, watch=self._watch)
        self.server = Server(plan, options, place)
        self._metrics = Metrics(self.server.omni)
        if begin.log_format is not None:
            self.server.observers.add(RequestLog())
        self._works: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Do what the parent says until it is gone, and then end."""
        while (word := await self._link.hear()) is not None:
            self._heard(word)
        end_group()

    def _heard(self, word: Word) -> None:
        match word:
            case Stop():
                self.server.stop()
            case Look():
                self._link.say(self._seen(word))
            case Ping(number=number):
                self._link.say(Pong(number=number))
            case Restore():
                work = asyncio.ensure_future(self._restore(word))
                self._works.add(work)
                work.add_done_callback(self._works.discard)
            case Told():
                self._watch.told(word)
            case _:
                raise AssertionError(f"the parent does not say `{type(word).__name__}`")

    def _seen(self, look: Look) -> Seen:
        readings = tuple(
            Reading(name=name, labels=labels, value=value)
            for name, labels, value in self._metrics.samples()
        )
        state = dict(state_form(self.server.omni))
        return Seen(number=look.number, state=state, readings=readings)

    async def _restore(self, restore: Restore) -> None:
        omni, failed = self.server.omni, None
        stage = next(each for each in omni.plan.stages if each.name == restore.stage)
        try:
            await omni.scale(stage.name, len(stage.replicas))
        except StagemeshError as error:
            failed = failed_of(error)
        self._link.say(Restored(number=restore.number, failed=failed))


class AskingWatch:
    """The parent, who knows how all frontends are."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Told]] = {}

    async def health(self) -> web.Response:
        """Let the parent answer."""
        return await self._ask(Tell(number=next(self._numbers), what="health"))

    async def metrics(self, accept: str) -> web.Response:
        """Let the parent answer."""
        return await self._ask(Tell(number=next(self._numbers), what="metrics", accept=accept))

    def told(self, told: Told) -> None:
        """The parent has answered, whether or not somebody still waits for it."""
        found = self._asked.get(told.number)
        if found is not None and not found.done():
            found.set_result(told)

    async def _ask(self, tell: Tell) -> web.Response:
        found = self._asked[tell.number] = asyncio.get_running_loop().create_future()
        self._link.say(tell)
        try:
            told = await found
        finally:
            del self._asked[tell.number]
        headers = {"Content-Type": told.content_type}
        return web.Response(body=told.body, status=told.status, headers=headers)


def failed_of(error: StagemeshError) -> Failed:
    """Return what the parent is told of an error."""
    flaws = error.diagnostics if isinstance(error, DiagnosticError) else ()
    return Failed(
        message=str(error),
        stage=error.stage if isinstance(error, StartupError) else None,
        flaws=tuple(Flaw(code=one.code, message=one.message, help=one.help) for one in flaws),
    )


def show_log(begin: Begin) -> None:
    """Log as the parent does; every line says which frontend it is of."""
    if begin.log_format is None and not begin.debug:
        return
    form = begin.log_format
    lines = logging.Formatter(_DEBUG) if form is None else FORMATS[form]()
    shown = logging.StreamHandler()
    shown.setFormatter(lines)
    shown.addFilter(_Of(begin.frontend))
    log = logging.getLogger("stagemesh")
    log.addHandler(shown)
    log.setLevel(logging.DEBUG if begin.debug else logging.INFO)


class _Of(logging.Filter):
    """Writes the number of a frontend into every record."""

    def __init__(self, frontend: int) -> None:
        super().__init__()
        self._frontend = frontend

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything pass."""
        record.frontend = self._frontend
        return True


if __name__ == "__main__":
    sys.exit(main())
