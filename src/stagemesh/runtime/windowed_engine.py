"""An engine that serves the oldest streams that can go on, a bounded number, and holds the others.

This is `active_stream_window`. A stage that goes round all of its streams gives every one of them
gaps once it has more than it can serve in time; so it serves some of them well, by age, and the
others wait without losing their place in the line.

Only who can go on takes a place. One that was paused, because nobody takes what it says, or that
waits for its next input, does without until that has come, and then goes before whoever is younger:
otherwise a user who does not read could stop all others, at stages that know nothing of him.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stagemesh.spec.engine import Engine, EngineOutput, EngineRequest
from stagemesh.spec.payload import MetaValue, Payload


@dataclass(eq=False, slots=True, kw_only=True)
class _Stream:
    """A request of the engine."""

    complete: bool = False
    """Whether it has its last input."""
    paused: bool = False
    """Whether the caller wants nothing of it now."""
    held: bool = False
    """Whether it could go on, and is not among the oldest that can."""


class WindowedEngine:
    """An engine around another one; everything that is not said here is that one's."""

    def __init__(self, engine: Engine, size: int) -> None:
        """Serve `size` streams at a time."""
        self._engine: Final = engine
        self._size: Final = size
        self._streams: dict[str, _Stream] = {}
        self._stale = False
        """Whether something has happened since the streams were chosen."""

    def load(self) -> None:
        """Load it."""
        self._engine.load()

    def add(self, request: EngineRequest) -> None:
        """Take a request, behind all others."""
        self._engine.add(request)
        self._streams[request.request_id] = _Stream()

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Give an input, whether its request is served now or not."""
        stream = self._streams.get(request_id)
        if stream is not None:
            stream.complete = last
        self._stale = True
        self._engine.append(request_id, payload, last=last)

    def wants_input(self, request_id: str) -> bool:
        """Whether it does; one that is held has something to do."""
        return self._engine.wants_input(request_id)

    def step(self) -> list[EngineOutput]:
        """Step for the oldest streams; those that end make place for the next."""
        self._choose()
        outputs = self._engine.step()
        for output in outputs:
            if output.finish is not None or output.error is not None:
                self._streams.pop(output.request_id, None)
        self._stale = True
        return outputs

    def pause(self, request_id: str) -> None:
        """Hold a request, which makes place for the next."""
        stream = self._streams.get(request_id)
        if stream is not None and not stream.paused:
            stream.paused = self._stale = True
            if not stream.held:
                self._engine.pause(request_id)

    def resume(self, request_id: str) -> None:
        """Let a request go on when its turn comes, which is by its age."""
        stream = self._streams.get(request_id)
        if stream is not None and stream.paused:
            stream.paused, self._stale = False, True
            if not stream.held:
                self._engine.resume(request_id)

    def cancel(self, request_id: str) -> None:
        """Forget a request, which makes place for the next."""
        self._streams.pop(request_id, None)
        self._stale = True
        self._engine.cancel(request_id)

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """Call it."""
        return self._engine.call(name, args)

    def has_work(self) -> bool:
        """Whether a stream can go on that is not held."""
        self._choose()
        return self._engine.has_work()

    def close(self) -> None:
        """Close it."""
        self._streams.clear()
        self._engine.close()

    def _choose(self) -> None:
        """Hold who can go on and is not among the oldest, and nobody else.

        Done when somebody asks what there is to do, once for all that has happened before.
        """
        if not self._stale:
            return
        self._stale = False
        free = self._size
        for name, stream in self._streams.items():
            can_go_on = not stream.paused and (
                stream.complete or not self._engine.wants_input(name)
            )
            held = can_go_on and free == 0
            free -= can_go_on and not held
            if held is not stream.held:
                stream.held = held
                if held:
                    self._engine.pause(name)
                elif not stream.paused:
                    self._engine.resume(name)
