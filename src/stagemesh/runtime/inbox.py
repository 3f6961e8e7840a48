"""What the I/O thread asks of the engine thread, and how an idle engine sleeps until then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TypeAlias

from stagemesh.runtime.messages import Key
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload


@frozen
class Add:
    """A request has come."""

    key: Key
    """The request."""
    params: Mapping[str, object]
    """Its parameters."""
    targets: tuple[int, ...]
    """Stages that it feeds."""
    since: float
    """When it came, on the monotonic clock."""
    session: str | None = None
    """The session that it is a turn of."""


@frozen
class Append:
    """An input has come."""

    key: Key
    """The request."""
    payload: Payload
    """The input, borrowed."""
    last: bool
    """Whether it is the last input of all edges."""
    keep: Callable[[], Payload] | None = field(default=None, compare=False)
    """Gives the memory back and returns what was in it; `None` where that has been done.

    May be called on any thread. Releasing what it returns gives the credit.
    """

    def kept(self) -> Append:
        """The same in memory of its own."""
        return self if self.keep is None else replace(self, payload=self.keep(), keep=None)


@frozen
class Pause:
    """There is no room for what a request says."""

    key: Key
    """The request."""


@frozen
class Resume:
    """There is room again."""

    key: Key
    """The request."""


@frozen
class Forget:
    """A request is cancelled."""

    key: Key
    """The request."""


@frozen
class Enter:
    """A session opens."""

    session: str
    """Its name."""


@frozen
class Exit:
    """A session is over, and so are all its turns."""

    session: str
    """Its name."""


@frozen
class Quit:
    """Leave the loop."""


Command: TypeAlias = Add | Append | Pause | Resume | Forget | Enter | Exit | Quit
"""Everything that can be asked."""


class Inbox:
    """Commands in order, from any thread to the engine's."""

    def __init__(self) -> None:
        """Begin empty."""
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._left_at: float | None = None

    @property
    def away_s(self) -> float:
        """For how long the engine's thread has been away from here, in its present step.

        `0` while it sleeps here, and before it comes for the first time: loading is no step.
        """
        left_at = self._left_at
        return 0.0 if left_at is None else monotonic() - left_at

    def put(self, command: Command) -> None:
        """Add a command and wake the engine if it sleeps."""
        self._commands.put(command)

    def take(self, *, wait: bool) -> Sequence[Command]:
        """Return all that has come; with `wait` sleep until there is something.

        The sleep needs no deadline: the end of the supervisor's stream ends the whole process.
        """
        self._left_at = None
        commands = [self._commands.get()] if wait else []
        while True:
            try:
                commands.append(self._commands.get_nowait())
            except Empty:
                self._left_at = monotonic()
                return commands
