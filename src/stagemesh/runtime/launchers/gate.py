"""Where the replicas that a start runs for a head are reached by those of other starts."""

from __future__ import annotations

import socket
from collections.abc import Callable

from stagemesh.runtime.transport.door import Door, listen, listen_near, near_name
from stagemesh.runtime.transport.handshake import Guest, Hello, Verdict
from stagemesh.runtime.transport.token import Secret


class Gate:
    """An open door; only streams that the head has told of come in. It belongs to one loop."""

    def __init__(self, address: str, secret: Secret, *, is_near: bool = False) -> None:
        """Listen at any free port, and for this host under its `near_name` if `is_near`.

        Raises `StartupError` when that fails.
        """
        self._links: dict[int, Callable[[socket.socket], None]] = {}
        self._secret = secret
        self._address = address
        self._door = self._opened(listen(address, 0))
        self._near: Door | None = None
        if is_near:
            self._near = self._opened(listen_near(near_name(*self.place)))

    @property
    def place(self) -> tuple[str, int]:
        """Where it is."""
        return self._address, self._door.port

    def expect(self, link: int, take: Callable[[socket.socket], None]) -> None:
        """A stream is to come in; `take` gets it."""
        self._links[link] = take

    def forget(self, link: int) -> None:
        """It is not wanted any more."""
        self._links.pop(link, None)

    async def close(self) -> None:
        """Let nobody in any more."""
        await self._door.close()
        if self._near is not None:
            await self._near.close()

    def _opened(self, listener: socket.socket) -> Door:
        return Door(listener, self._secret, self._judge, self._come_in)

    def _judge(self, hello: Hello) -> Verdict:
        """The head may not have told of it yet."""
        if hello.role == "link" and hello.link in self._links:
            return Verdict()
        return Verdict(reason="nobody expects this stream", again=True)

    def _come_in(self, guest: Guest) -> None:
        take = self._links.pop(guest.hello.link, None)
        if take is None:
            guest.sock.close()
        else:
            take(guest.sock)
