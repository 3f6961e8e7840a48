"""The engine loop of a further rank: it does what rank 0 says, and says nothing itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import cast

from stagemesh.config.plain import plain
from stagemesh.runtime.ranks.commands import (
    Added,
    Appended,
    Call,
    Close,
    Command,
    Entered,
    Exited,
    Forgotten,
    OfRequest,
    Paused,
    Resumed,
    Step,
)
from stagemesh.runtime.ranks.feed import FeedReader
from stagemesh.spec.engine import Engine, EngineRequest, SessionEngine
from stagemesh.spec.payload import Buffer, Payload


class Follower:
    """Drives the engine of one further rank."""

    def __init__(self, engine: Engine, feed: FeedReader) -> None:
        """Do nothing yet."""
        self._engine = engine
        self._feed = feed

    def run(self) -> bool:
        """Work until rank 0 closes; `False` when it is gone without that.

        Raises what the engine raises, unless it has raised at rank 0 as well.
        """
        is_closed: bool | None = None
        while is_closed is None:
            is_closed = self._turn()
        return is_closed

    def _turn(self) -> bool | None:
        """Do what comes next; whether rank 0 has closed, once it is over.

        On its own, so that memory of an input is not held while there is nothing to do.
        """
        taken = self._feed.take()
        if taken is None:
            return False
        commands, space = taken
        for command in commands:
            if isinstance(command, Close):
                return True
            self._follow(command, space)
        return None

    def _follow(self, command: Command, space: memoryview) -> None:
        match command:
            case Step():
                self._engine.step()  # results are those of rank 0
            case Call(name=name, args=args):
                with contextlib.suppress(KeyError):  # which rank 0 tells whoever asked
                    self._engine.call(name, args)
            case Entered() | Exited():
                _alike(self._session(command), raises=command.raised)
            case Added() | Appended() | Paused() | Resumed() | Forgotten():
                _alike(self._work(command, space), raises=command.raised)

    def _work(self, command: OfRequest, space: memoryview) -> Callable[[], None]:
        engine, rid = self._engine, command.rid
        match command:
            case Added(params=given, session=session):
                params = {name: plain(value) for name, value in given.items()}
                request = EngineRequest(request_id=rid, params=params, session=session)
                return partial(engine.add, request)
            case Appended(last=last):
                return partial(engine.append, rid, _payload(command, space), last=last)
            case Paused():
                return partial(engine.pause, rid)
            case Resumed():
                return partial(engine.resume, rid)
            case Forgotten():
                return partial(engine.cancel, rid)

    def _session(self, command: Entered | Exited) -> Callable[[], None]:
        engine = cast("SessionEngine", self._engine)  # as at rank 0, which has done so
        work = engine.open_session if isinstance(command, Entered) else engine.close_session
        return partial(work, command.rid)


def _payload(command: Appended, space: memoryview) -> Payload:
    """The input; its memory goes with the last view of it."""
    buffers = tuple(
        Buffer(
            name=head.name,
            dtype=head.dtype,
            shape=head.shape,
            data=space[head.start : head.start + head.num_bytes],
        )
        for head in command.heads
    )
    return Payload(meta=command.meta, buffers=buffers)


def _alike(work: Callable[[], None], *, raises: bool) -> None:
    """Do what rank 0 has done, with the same end."""
    try:
        work()
    except Exception:
        if not raises:
            raise
        return
    if raises:
        raise RuntimeError("rank 0 failed at what went well here")
