"""What the supervisor needs of a process, and of whoever starts it, wherever it runs."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from stagemesh.plan.values import StagePlan
from stagemesh.runtime.messages import Blame, Message, PeerUp
from stagemesh.runtime.pulse import Pulse
from stagemesh.spec.frozen import frozen


@frozen
class Incarnation:
    """One process of one replica, which tells it from those before and after it."""

    stage: str
    """Name of the stage."""
    replica: int
    """Number of the replica."""
    number: int = 0
    """Higher than that of every process before it in its place."""
    rank: int = 0
    """Number of the rank; rank 0 stands for its replica."""

    def __str__(self) -> str:
        replica = f"stage `{self.stage}` replica `{self.replica}`"
        return f"{replica} rank `{self.rank}`" if self.rank else replica


class Process(Protocol):
    """A process of one replica. All methods belong to the loop that started it."""

    name: str
    """What it is called in messages."""
    ready: asyncio.Future[float]
    """Done once it has loaded, with the seconds that it took."""
    exited: asyncio.Future[str]
    """Done once nothing is left of it, with how it ended."""
    pulse: Pulse
    """Whether it answers."""

    @property
    def pid(self) -> int | None:
        """Its number, when it runs on this host."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        ...

    @property
    def values(self) -> Mapping[str, object]:
        """What its own start has decided for its stage, once it is ready."""
        ...

    def say(self, message: Message) -> None:
        """Send a message without descriptors."""
        ...

    def ping(self) -> None:
        """Ask how it is; unanswered questions are not repeated."""
        ...

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """End it and what it has started; may be called from any thread."""
        ...

    def lost(self, reason: str | None) -> None:
        """End it because a stream to it has ended; `reason` says what it did wrong, if anything."""
        ...

    def last_words(self) -> str:
        """The last lines that it wrote, where they are all that is known of its end."""
        ...


@frozen
class Start:
    """What is to be started."""

    who: Incarnation
    """Its name."""
    stage: StagePlan
    """Its stage."""
    saved_plan: str
    """The whole plan in its saved form."""
    host: Process | None = None
    """The process that it is to run in, where it has none of its own."""
    num_guests: int = 0
    """Further stages that are to run in its process."""
    on_exit: Callable[[str], None]
    """Called once with the reason when nothing is left of it."""
    on_blame: Callable[[Blame], None]
    """Called whenever it complains of a peer."""


@frozen
class Party:
    """One end of a stream that is to be."""

    process: Process
    """Whose end it is."""
    up: PeerUp
    """How the other end is told of it."""


class Launcher(Protocol):
    """Starts processes, and makes streams between them."""

    async def open(self) -> None:
        """Prepare, before anything is started; raises `StartupError`."""
        ...

    def start(self, start: Start) -> Process:
        """Start a process, or take one that somebody else starts; raises `StartupError`."""
        ...

    def call(self, process: Process) -> tuple[asyncio.Future[socket.socket], asyncio.Future[None]]:
        """Make the caller's stream to a process.

        The first future is our end, the second is done when the process knows of the stream, and
        the first is then done as well; or when it has ended. Raises `OSError` when there are no
        descriptors left.
        """
        ...

    def connect(self, one: Party, other: Party) -> Sequence[asyncio.Future[None]]:
        """Make a stream between two; the futures are done when both know of it, or one has ended.

        Raises `OSError` when there are no descriptors left.
        """
        ...

    async def close(self) -> None:
        """Start and connect nothing more; processes are left as they are."""
        ...
