"""What the supervisor and one stage process say to each other, whatever carries it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from stagemesh.runtime.messages import (
    Attached,
    Blame,
    Fatal,
    Message,
    Met,
    PeerUp,
    Pong,
    ProtocolError,
    Ready,
)
from stagemesh.runtime.pulse import Pulse


class Dialogue:
    """What one process has said so far."""

    def __init__(self, on_blame: Callable[[Blame], None]) -> None:
        """Nothing was said yet; `on_blame` is called whenever it complains of a peer."""
        self._on_blame = on_blame
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[float] = self._loop.create_future()
        self.values: Mapping[str, object] = {}
        self.pulse = Pulse()
        self.fatal: str | None = None
        self._meets: dict[tuple[int | None, int, int], asyncio.Future[None]] = {}

    def meets(self, up: PeerUp) -> asyncio.Future[None]:
        """It is told of a peer: done once it says that it knows it, or has ended."""
        met: asyncio.Future[None] = self._loop.create_future()
        self._meets[up.stage, up.replica, up.incarnation] = met
        return met

    def forget(self, up: PeerUp) -> None:
        """The peer has ended: it is not going to say that it knows it."""
        _settle(self._meets.pop((up.stage, up.replica, up.incarnation), None))

    def hear(self, message: Message, attached: Attached) -> None:
        """Take in what it says; raises `ProtocolError` for what it must not."""
        match message:
            case Ready() if not self.ready.done():
                self.values = message.values
                self.ready.set_result(message.load_s)
            case Fatal():
                self.fatal = message.reason
            case Met(stage=stage, replica=replica, incarnation=incarnation):
                _settle(self._meets.pop((stage, replica, incarnation), None))
            case Blame():
                self._on_blame(message)
            case Pong(number=number, step_s=step_s, load=load):
                self.pulse.answered(number, step_s, load)
            case _:
                attached.close()
                raise ProtocolError(f"a stage does not say `{type(message).__name__}` here")

    def over(self) -> None:
        """It has ended: nobody waits for its word any more."""
        for met in self._meets.values():
            _settle(met)
        self._meets.clear()


def _settle(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
