"""Rank 0's engine as the stage drives it: whatever it is asked, every other rank is asked as well.

What is asked between two steps goes out together with the second one. When the loop is about to
sleep it goes out at once, so that ranks let go of what they need not hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, cast

from stagemesh.runtime.ranks.commands import (
    Added,
    Appended,
    Call,
    Close,
    Entered,
    Exited,
    Forgotten,
    OfRequest,
    OfSession,
    Paused,
    Resumed,
    Step,
)
from stagemesh.runtime.ranks.feed import FeedWriter
from stagemesh.spec.engine import Engine, EngineOutput, EngineRequest, SessionEngine
from stagemesh.spec.payload import MetaValue, Payload

_STEP: Final = Step()
_END_S: Final = 5.0
"""How long whoever started the ranks may take to end them all when one is gone."""


class BroadcastEngine(SessionEngine):
    """The engine of rank 0 and, through a feed, those of the others; results are rank 0's.

    It is asked for sessions only where those engines keep them.
    """

    def __init__(self, engine: Engine, feed: FeedWriter) -> None:
        """Take over both."""
        self._engine = engine
        self._feed = feed
        self._in_step = False

    def load(self) -> None:
        """Load, and wait until all ranks have."""
        self._engine.load()
        self._or_bereft(self._feed.await_ready)

    def add(self, request: EngineRequest) -> None:
        """Take a request."""
        rid, params = request.request_id, dict(request.params)
        told = partial(Added, rid=rid, params=params, session=request.session)
        self._then_tell(partial(self._engine.add, request), told)

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Give one input; its buffers are copied before the engine may give them back."""
        heads = self._feed.hold(payload.buffers)
        told = partial(Appended, rid=request_id, meta=dict(payload.meta), heads=heads, last=last)
        self._then_tell(partial(self._engine.append, request_id, payload, last=last), told)

    def wants_input(self, request_id: str) -> bool:
        """Whether a request wants more at rank 0, and therefore everywhere."""
        return self._engine.wants_input(request_id)

    def pause(self, request_id: str) -> None:
        """Hold a request back."""
        self._then_tell(partial(self._engine.pause, request_id), partial(Paused, rid=request_id))

    def resume(self, request_id: str) -> None:
        """Let a request go on."""
        self._then_tell(partial(self._engine.resume, request_id), partial(Resumed, rid=request_id))

    def cancel(self, request_id: str) -> None:
        """Forget a request."""
        told = partial(Forgotten, rid=request_id)
        self._then_tell(partial(self._engine.cancel, request_id), told)

    def open_session(self, session: str) -> None:
        """Open a session on every rank."""
        work = partial(cast("SessionEngine", self._engine).open_session, session)
        self._then_tell(work, partial(Entered, rid=session))

    def close_session(self, session: str) -> None:
        """Close a session on every rank."""
        work = partial(cast("SessionEngine", self._engine).close_session, session)
        self._then_tell(work, partial(Exited, rid=session))

    def step(self) -> list[EngineOutput]:
        """Make a step on every rank."""
        self._feed.add(_STEP)
        self._flush()
        self._in_step = True
        outputs = self._engine.step()
        self._in_step = False
        return outputs

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """Run a control action on every rank; what it returns here is the result."""
        self._feed.add(Call(name=name, args=dict(args)))
        self._flush()
        return self._engine.call(name, args)

    def has_work(self) -> bool:
        """Whether `step` would make progress; before `False` all is told that was not yet."""
        works = self._engine.has_work()
        if not works:
            self._flush()
        return works

    def close(self) -> None:
        """Close all of them; after a step that raised, others may wait in it: they are ended."""
        if not self._in_step:
            self._feed.add(Close())
            self._or_bereft(self._feed.flush)
            self._engine.close()
        self._feed.close()

    def _then_tell(
        self, work: Callable[[], None], told: Callable[..., OfRequest | OfSession]
    ) -> None:
        try:
            work()
        except Exception:
            self._feed.add(told(raised=True))
            raise
        self._feed.add(told(raised=False))

    def _flush(self) -> None:
        self._or_bereft(self._feed.flush)

    def _or_bereft(self, work: Callable[[], None]) -> None:
        """Do what needs all ranks; without one there is nothing to do but to be ended."""
        try:
            work()
        except OSError as error:
            time.sleep(_END_S)
            raise RuntimeError("another rank is gone") from error
