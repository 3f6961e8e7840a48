"""The processes of one replica whose ranks the runtime starts, to be handled as if they were one.

Rank 0 is the stage's process. The others hear of what it is asked on feeds of their own, and meet
it for their collectives at a socket that listens before any of them runs. They are processes of
this host, or others keep them and come. They live together: when one ends or says that it cannot go
on, all are ended, and the first cause is the reason.
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
from stagemesh.runtime.launchers.far_rank import FarRank, FarRanks
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
    Welcome,
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

    child: Child | FarRank
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
        far: FarRanks | None = None,
    ) -> None:
        """Start one in each of `around`.

        `on_exit` is called once, when all have been reaped, with the cause. Further ranks that are
        `far` are waited for instead. Raises `StartupError` when there is no process, or no
        descriptor, left for the first.
        """
        self._on_message = on_message
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._listener = _listening(who, _LOOPBACK if far is None else far.address)
        self._suspects: list[_Rank] = []
        self._flaw: str | None = None
        self._is_ending = False
        self._end: asyncio.TimerHandle | None = None
        self._pongs: dict[int, Pong] = {}
        self._feeds: dict[int, socket.socket] = {}
        self._is_fed = False
        self._is_welcome = False
        try:
            first = self._start(who, around[0])
        except StartupError:
            self._listener.close()
            raise
        self.pid: Final = first.pid
        """The process of rank 0."""
        self.control: Final = first.control
        """The stream to it."""
        self._ranks = [_Rank(child=first)]
        for number, place in enumerate(around[1:], start=1):
            each = replace(who, rank=number)
            try:
                child = self._start(each, place) if far is None else self._awaited(each, far)
            except StartupError as error:
                self._flawed(number, error)
                break
            self._ranks.append(_Rank(child=child))

    @property
    def silent(self) -> str:
        """Who has not answered the last question."""
        numbers = [number for number in range(len(self._ranks)) if number not in self._pongs]
        return "rank " + ", ".join(f"`{number}`" for number in numbers)

    def say(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send a message to those whom it concerns; closes `fds` once sent."""
        if isinstance(message, Welcome) and not self._is_fed:
            self._is_welcome = True  # which it is told once it has its way to all others
            return
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

    def _awaited(self, who: Incarnation, far: FarRanks) -> FarRank:
        heard, ended = partial(self._heard, who.rank), partial(self._ended, who.rank)
        return FarRank(who.rank, far, heard, ended)

    def _set_up(self, setup: Setup) -> None:
        """Tell ranks what they are, and introduce them to rank 0."""
        address, port = self._listener.getsockname()
        meeting = Meeting(address=address, port=port)
        self.control.send(meeting, (self._listener.detach(),))
        for number, rank in enumerate(self._ranks[1:], start=1):
            if isinstance(rank.child, FarRank):
                rank.child.set_up(meeting, partial(self._fed, number))
                continue
            try:
                near, far = feed_pair()
            except OSError as error:
                self._flawed(number, error)
                return
            rank.child.say(msgspec.structs.replace(setup, rank=number))
            rank.child.say(meeting)
            rank.child.say(Feed(rank=number), (far.detach(),))
            self._fed(number, near)

    def _fed(self, number: int, sock: socket.socket) -> None:
        """There is a way to a further rank: rank 0 hears of all of them, in order, or of none."""
        self._feeds[number] = sock
        if len(self._feeds) < len(self._ranks) - 1:
            return
        for rank, feed in sorted(self._feeds.items()):
            self.control.send(Feed(rank=rank), (feed.detach(),))
        self._is_fed = True
        if self._is_welcome:
            self.control.send(Welcome())

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
        """A stream has ended: so will the process of this host, and it is not left to linger."""
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
        for feed in self._feeds.values():
            feed.close()
        cause = self._cause or self._ranks[0]
        told = f"rank `{self._ranks.index(cause)}` {cause.told}"
        self._on_exit(self._flaw or told)


def start_replica(
    who: Incarnation,
    around: Sequence[Surroundings],
    on_message: OnMessage,
    on_eof: OnEof,
    on_exit: Callable[[str], None],
    far: FarRanks | None = None,
) -> Child | RankedChildren:
    """Start all processes of one replica, as far as others do not start its further ranks.

    There is one in each of `around`. Raises `StartupError` when there can be none.
    """
    if len(around) > 1:
        return RankedChildren(who, around, on_message, on_exit, far)
    return Child(who, around[0], on_message, on_eof, on_exit)


def _listening(who: Incarnation, address: str) -> socket.socket:
    try:
        return socket.create_server((address, 0))
    except OSError as error:
        raise StartupError(f"{who} could not be started: {error}", stage=who.stage) from error
