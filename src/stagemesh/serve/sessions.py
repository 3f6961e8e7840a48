"""`GET /v1/session`: full-duplex sessions over WebSockets (RFC 6455), one JSON document a message.

    the client says   {"type": "turn", "id": "a", "prompt": ...}, {"type": "cancel", "id": "a"}
                      and {"type": "close"}
    and hears         opened; output, done and failed of a turn; closed; each with a `number`

A session is opened before the connection is: where there is no place for it the answer is 503, as
for any other request. A connection that ends leaves the session to its client for as long as the
plan says, where the model's sessions can be resumed: `?resume=TOKEN&after=NUMBER` goes on after the
last event that was seen.
"""

from __future__ import annotations

from typing import Final

from aiohttp import WSMsgType, web

from stagemesh.plan.sessions import DuplexPlan
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.session import Session
from stagemesh.serve.talk import Talk

_RESUME: Final = "resume"
_AFTER: Final = "after"


class SessionRoute:
    """The sessions of all clients of one system."""

    def __init__(self, omni: AsyncOmni, max_message_bytes: int) -> None:
        """Nobody is there; longer messages end their connection."""
        self._omni = omni
        self._max_message_bytes = max_message_bytes
        self._talks: dict[str, Talk] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Open a session, or go on with one, until the connection ends."""

        def cut() -> None:
            if request.transport is not None:  # else it has ended by itself
                request.transport.abort()

        socket = web.WebSocketResponse(max_msg_size=self._max_message_bytes)
        if not socket.can_prepare(request).ok:
            raise web.HTTPBadRequest(reason="a session needs a WebSocket")
        token, after = request.query.get(_RESUME), _number(request.query.get(_AFTER))
        talk = await self._open() if token is None else self._find(token, after)
        try:
            await socket.prepare(request)
        except BaseException:
            if token is None:
                talk.session.close()
            raise
        try:
            if token is None:
                await talk.greet(socket, cut)
            else:
                await talk.take_over(socket, cut, after)
            async for message in socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    await talk.hear(message.data, request.headers)
        finally:
            talk.lost(socket)
        return socket

    async def close(self, _app: web.Application) -> None:
        """Nobody is served any more."""
        for talk in list(self._talks.values()):
            talk.stop()

    async def _open(self) -> Talk:
        session: Session = await self._omni.open_session()
        plan: DuplexPlan | None = self._omni.plan.session.duplex
        assert plan is not None, "a session was opened"
        talk = Talk(session, plan, self._forget)
        self._talks[talk.token] = talk
        return talk

    def _find(self, token: str, after: int | None) -> Talk:
        talk = self._talks.get(token)
        if talk is None:
            raise web.HTTPNotFound(reason="no session waits for that token")
        if talk.missed(after) is None:
            raise web.HTTPGone(reason="what was sent since then is not kept any more")
        return talk

    def _forget(self, talk: Talk) -> None:
        self._talks.pop(talk.token, None)


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise web.HTTPBadRequest(reason="`after` is the number of an event") from None
