"""Where the replicas that a start runs for a head are reached by those of other starts."""

from __future__ import annotations

import socket
from collections.abc import Callable

from stagemesh.runtime.transport.door import Door, listen
from stagemesh.runtime.transport.handshake import Guest, Hello, Verdict
from stagemesh.runtime.transport.token import Secret


class Gate:
    """An open door; only streams that the head has told of come in. It belongs to one loop."""

    def __init__(self, address: str, secret: Secret) -> None:
        """Listen at any free port; raises `StartupError` when that fails."""
        self._links: dict[int, Callable[[socket.socket], None]] = {}
        self._door = Door(listen(address, 0), secret, self._judge, self._come_in)
        self._address = address

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
