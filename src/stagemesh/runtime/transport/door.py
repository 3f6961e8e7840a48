"""Where streams come in, and how one gets out to such a place.

Whoever comes in is greeted before anybody else sees the stream. A start listens at one address;
at most `MAX_STRANGERS` may be in the middle of their first words, the next one is turned away.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stagemesh.errors import StartupError
from stagemesh.runtime.messages import ProtocolError
from stagemesh.runtime.pipes import tune
from stagemesh.runtime.transport.handshake import Guest, Hello, Judge, Refused, introduce, receive
from stagemesh.runtime.transport.token import Secret
from stagemesh.spec.frozen import frozen

MAX_STRANGERS: Final = 64
"""Most streams that have not said who they are."""
_BACKLOG: Final = 128
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S: Final = 0.2
_AGAIN_S: Final = 0.2
_CREDENTIALS: Final = struct.Struct("3i")
_NEAR: Final = "\0"
"""What names begin with that are known to this host alone."""
_log: Final = logging.getLogger(__name__)


class Door:
    """A listening socket. All methods belong to one loop."""

    def __init__(
        self,
        listener: socket.socket,
        secret: Secret,
        judge: Judge,
        on_guest: Callable[[Guest], None],
    ) -> None:
        """Take over `listener`; `on_guest` gets every stream that was taken, and owns it."""
        listener.setblocking(False)  # noqa: FBT003  signature of the standard library
        self._listener = listener
        self._secret = secret
        self._judge = judge
        self._on_guest = on_guest
        self._loop = asyncio.get_running_loop()
        self._greetings: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(listener, self._accept)

    @property
    def port(self) -> int:
        """The TCP port."""
        port: int = self._listener.getsockname()[1]
        return port

    async def close(self) -> None:
        """Let nobody in any more; streams that are in stay. Calling it again does nothing."""
        if self._listener.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for greeting in self._greetings:
            greeting.cancel()
        await asyncio.gather(*self._greetings, return_exceptions=True)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:  # it stays readable: come back when somebody has left
                _log.warning("nobody can be let in: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(
                    _PAUSE_S, self._loop.add_reader, self._listener, self._accept
                )
            return
        if len(self._greetings) >= MAX_STRANGERS or not _is_ours(sock):
            sock.close()
            return
        greeting = self._loop.create_task(self._greet(sock))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)

    async def _greet(self, sock: socket.socket) -> None:
        sock.setblocking(False)  # noqa: FBT003  signature of the standard library
        try:
            hello = await receive(sock, self._secret.token, self._judge)
        except (OSError, ProtocolError) as error:  # which its deadline is
            is_usual = isinstance(error, Refused) and error.again
            told = str(error) or "it said nothing in time"
            _log.log(
                logging.DEBUG if is_usual else logging.WARNING,
                "a stream was turned away: %s",
                told,
            )
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            if sock.family != socket.AF_UNIX:
                tune(sock)
            self._on_guest(Guest(hello=hello, sock=sock))


def listen(address: str, port: int) -> socket.socket:
    """Listen at a TCP address; raises `StartupError` naming what stands in the way."""
    try:
        entry = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(entry[0], socket.SOCK_STREAM)
    except OSError as error:
        raise StartupError(f"`{address}` is no address to listen at: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(entry[4])
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen at `{address}:{port}`: {error.strerror}") from error
    return listener


def listen_unix(path: Path) -> socket.socket:
    """Listen at a path in a folder that is the user's alone, which is made if need be."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.parent.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise StartupError(f"`{path.parent}` must be a folder that only its owner may use")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen at `{path}`: {error.strerror or error}") from error
    return listener


def near_name(address: str, port: int) -> str:
    """Return the name under which processes of this host reach what others do at an address.

    Such a name is no path: nothing is left of it when its listener has ended, however it has.
    """
    return f"{_NEAR}stagemesh/{address}:{port}"


def listen_near(name: str) -> socket.socket:
    """Listen at a name of this host; raises `StartupError` when somebody else has it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(name)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen at `{name[1:]}`: {error.strerror}") from error
    return listener


async def dial(address: str, port: int, hello: Hello, secret: Secret) -> tuple[socket.socket, int]:
    """Connect to a door and say who we are; return the stream and the number that we are given.

    The address may be a `near_name`. Raises `OSError` when nobody is there, `Refused` when we are
    not taken, and `ProtocolError` when the other end is none of ours.
    """
    loop = asyncio.get_running_loop()
    is_near = address.startswith(_NEAR)
    if is_near:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        entry = (await loop.getaddrinfo(address, port, type=socket.SOCK_STREAM))[0]
        sock = socket.socket(entry[0], socket.SOCK_STREAM)
    try:
        sock.setblocking(False)  # noqa: FBT003  signature of the standard library
        if not is_near:
            tune(sock)
        await loop.sock_connect(sock, address if is_near else entry[4])
        number = await introduce(sock, hello, secret.token)
    except BaseException:
        sock.close()
        raise
    return sock, number


@frozen
class Patience:
    """How long `dial_until` tries again."""

    absent_s: float
    """While nobody is there."""
    busy_s: float
    """While somebody may take us another time."""


async def dial_until(
    patience: Patience, address: str, port: int, hello: Hello, secret: Secret
) -> tuple[socket.socket, int]:
    """Like `dial`, but try again; in the end it raises what it has found the last time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            return await dial(address, port, hello, secret)
        except Refused as error:
            if not error.again or loop.time() > began + patience.busy_s:
                raise
        except OSError:
            if loop.time() > began + patience.absent_s:
                raise
        await asyncio.sleep(_AGAIN_S)


def _is_ours(sock: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket is the same user's; TCP has tokens."""
    if sock.family != socket.AF_UNIX:
        return True
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return bool(uid == os.geteuid())
