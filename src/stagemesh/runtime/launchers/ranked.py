"""The processes of one replica whose ranks the runtime starts, to be handled as if they were one.

Rank 0 is the stage's process. The others hear of what it is asked on feeds of their own, and meet
it for their collectives at a socket that listens before any of them runs. They live together: when
one ends or says that it cannot go on, all are ended, and the first cause is the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from stagemesh.errors import StartupError
from stagemesh.runtime.child import Child
from stagemesh.runtime.messages import (
    Attached,
    Fatal,
    Feed,
    Meeting,
    Message,
    Ping,
    Pong,
    ProtocolError,
    Setup,
)
from stagemesh.runtime.process import Incarnation
from stagemesh.runtime.ranks.feed import feed_pair
from stagemesh.runtime.stream import OnEof, OnMessage
from stagemesh.runtime.surroundings import Surroundings

_LOOPBACK: Final = "127.0.0.1"
_ECHO_S: Final = 0.2
"""How long after a complaint the true cause may still be heard of: a collective fails at once when
a peer has died."""
_LEAVE_S: Final = 3.0
"""How long a rank may take to end when another has done so in order, or its stream has ended."""
_IN_ORDER: Final = "exited with code 0"


@dataclass(eq=False, slots=True, kw_only=True)
class _Rank:
    """One of them."""

    child: Child
    fatal: str | None = None
    """Why it cannot go on, if it has said so."""
    how: str | None = None
    """How it has ended."""

    @property
    def told(self) -> str:
        """Why it is of no use any more."""
        return f"failed: {self.fatal}" if self.fatal is not None else str(self.how)

    @property
    def grace_s(self) -> float:
        """How long the others may live on; the sooner they must end, the likelier is it the cause.

        Who has just died has not done so because of another.
        """
        if self.fatal is not None:
            return _ECHO_S
        return _LEAVE_S if self.how == _IN_ORDER else 0.0


class RankedChildren:
    """The ranks of one replica. All methods belong to the loop that started them."""

    def __init__(
        self,
        who: Incarnation,
        around: Sequence[Surroundings],
        on_message: OnMessage,
        on_exit: Callable[[str], None],
    ) -> None:
        """Start one in each of `around`.

        `on_exit` is called once, when all have been reaped, with the cause. Raises `StartupError`
        when there is no process, or no descriptor, left for the first.
        """
        self._on_message = on_message
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._listener = _listening(who)
        self._ranks: list[_Rank] = []
        self._suspects: list[_Rank] = []
        self._flaw: str | None = None
        self._is_ending = False
        self._end: asyncio.TimerHandle | None = None
        self._pongs: dict[int, Pong] = {}
        for rank, each in enumerate(around):
            try:
                self._ranks.append(_Rank(child=self._start(replace(who, rank=rank), each)))
            except StartupError as error:
                if not self._ranks:
                    self._listener.close()
                    raise
                self._flawed(rank, error)
                break
        self.control = self._ranks[0].child.control

    @property
    def pid(self) -> int:
        """The process of rank 0."""
        return self._ranks[0].child.pid

    @property
    def silent(self) -> str:
        """Who has not answered the last question."""
        numbers = [number for number in range(len(self._ranks)) if number not in self._pongs]
        return "rank " + ", ".join(f"`{number}`" for number in numbers)

    def say(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send a message to those whom it concerns; closes `fds` once sent."""
        self.control.send(message, fds)
        if isinstance(message, Setup):
            self._set_up(message)
        elif isinstance(message, Ping):
            self._pongs.clear()
            for rank in self._ranks[1:]:
                rank.child.say(message)

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to all, and to what they have started; may be called from any thread."""
        self._is_ending |= with_signal is signal.SIGKILL
        for rank in self._ranks:
            rank.child.kill(with_signal)

    def abandon(self) -> None:
        """End all, once the cause may have been heard of: it need not be rank 0 itself."""
        self._end_at(self._loop.time() + _ECHO_S)

    def last_lines(self) -> str:
        """The last lines that the first cause wrote, where they are all that is known of it."""
        cause = self._cause
        told_all = self._flaw is not None or cause is None or cause.fatal is not None
        return "" if told_all or cause is None else cause.child.last_lines()

    @property
    def _cause(self) -> _Rank | None:
        return min(self._suspects, key=lambda rank: rank.grace_s, default=None)

    def _start(self, who: Incarnation, around: Surroundings) -> Child:
        return Child(
            who,
            around,
            partial(self._heard, who.rank),
            partial(self._hung_up, who.rank),
            partial(self._ended, who.rank),
        )

    def _set_up(self, setup: Setup) -> None:
        """Tell ranks what they are, and introduce them to rank 0."""
        address, port = self._listener.getsockname()
        meeting = Meeting(address=address, port=port)
        self.control.send(meeting, (self._listener.detach(),))
        for number, rank in enumerate(self._ranks[1:], start=1):
            try:
                near, far = feed_pair()
            except OSError as error:
                self._flawed(number, error)
                return
            feed = Feed(rank=number)
            self.control.send(feed, (near.detach(),))
            rank.child.say(msgspec.structs.replace(setup, rank=number))
            rank.child.say(meeting)
            rank.child.say(feed, (far.detach(),))

    def _flawed(self, number: int, error: Exception) -> None:
        """It cannot come to be: what there is of it is ended."""
        self._flaw = f"rank `{number}` could not be started: {error.__cause__ or error}"
        self.kill()

    def _heard(self, number: int, message: Message, attached: Attached) -> None:
        match message:
            case Fatal(reason=reason):
                self._ranks[number].fatal = reason
                self._suspect(self._ranks[number])
            case Pong():
                self._pongs[number] = message
                if len(self._pongs) == len(self._ranks):
                    step_s = max(pong.step_s for pong in self._pongs.values())
                    # rank 0 alone counts: it is the stage, and the others do as it does
                    load = self._pongs[0].load
                    pong = Pong(number=message.number, step_s=step_s, load=load)
                    self._on_message(pong, attached)
            case _ if number == 0:
                self._on_message(message, attached)
            case _:
                attached.close()
                raise ProtocolError(f"a rank does not say `{type(message).__name__}`")

    def _hung_up(self, number: int, reason: str | None) -> None:
        """A stream has ended: so will the process, and it is not left to linger."""
        rank = self._ranks[number]
        if reason is None:
            self._loop.call_later(_LEAVE_S, rank.child.kill)
        else:
            rank.fatal = rank.fatal or reason
            self._suspect(rank)

    def _ended(self, number: int, how: str) -> None:
        self._ranks[number].how = how
        self._suspect(self._ranks[number])
        if all(rank.how is not None for rank in self._ranks):
            self._over()

    def _suspect(self, rank: _Rank) -> None:
        """One is of no use any more: the others are ended as soon as the cause is known."""
        if self._is_ending:
            return
        if rank not in self._suspects:
            self._suspects.append(rank)
        self._end_at(self._loop.time() + rank.grace_s)

    def _end_at(self, when: float) -> None:
        if self._end is None or when < self._end.when():
            if self._end is not None:
                self._end.cancel()
            self._end = self._loop.call_at(when, self.kill)

    def _over(self) -> None:
        """None of them is left."""
        if self._end is not None:
            self._end.cancel()
        with contextlib.suppress(OSError):  # it was handed over
            self._listener.close()
        cause = self._cause or self._ranks[0]
        told = f"rank `{self._ranks.index(cause)}` {cause.told}"
        self._on_exit(self._flaw or told)


def start_replica(
    who: Incarnation,
    around: Sequence[Surroundings],
    on_message: OnMessage,
    on_eof: OnEof,
    on_exit: Callable[[str], None],
) -> Child | RankedChildren:
    """Start all processes of one replica, one in each of `around`.

    Raises `StartupError` when there can be none.
    """
    if len(around) > 1:
        return RankedChildren(who, around, on_message, on_exit)
    return Child(who, around[0], on_message, on_eof, on_exit)


def _listening(who: Incarnation) -> socket.socket:
    try:
        return socket.create_server((_LOOPBACK, 0))
    except OSError as error:
        raise StartupError(f"{who} could not be started: {error}", stage=who.stage) from error
