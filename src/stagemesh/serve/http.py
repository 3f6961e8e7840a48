"""The public HTTP interface: one native endpoint for every pipeline, and health.

    POST /v1/generate   JSON in; server-sent events out, or one JSON document with `stream: false`
    GET  /v1/session    a full-duplex session over a WebSocket, see `sessions`
    GET  /metrics       counts and times for Prometheus, see `metric_table`
    GET  /health        200 while every stage can serve, else 503; the body says which cannot

The status of an answer is known when its first event is: what fails before any output fails with a
status of its own. A client that goes away cancels its request; one that stops reading stops the
reading from the request.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp import web

from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    DiagnosticError,
    InvalidRequestError,
    OverloadedError,
    RequestError,
    StagemeshError,
)
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import StageProgress
from stagemesh.runtime.running import Running
from stagemesh.runtime.transport.token import Secret
from stagemesh.serve import forms
from stagemesh.serve.forms import GenerateForm, Json
from stagemesh.serve.metrics import Metrics
from stagemesh.serve.sessions import SessionRoute
from stagemesh.serve.spans import continued
from stagemesh.serve.state import can_serve, health_form

_JSON: Final = "application/json"
_RETRY_AFTER_S: Final = 1
"""Where nothing is known of when trying again can help."""
_OPEN_PATHS: Final = frozenset({"/health"})
"""What needs no key: balancers ask it, to know whether to send users here."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Watched(Protocol):
    """Whoever knows how the whole server is."""

    async def health(self) -> web.Response:
        """Answer `GET /health`."""
        ...

    async def metrics(self, accept: str) -> web.Response:
        """Answer `GET /metrics` in the form that `accept` asks for."""
        ...


class OwnWatch:
    """The system of this process, which is the whole server."""

    def __init__(self, omni: AsyncOmni) -> None:
        """Listen to `omni` from now on."""
        self._omni = omni
        self._metrics = Metrics(omni)

    async def health(self) -> web.Response:
        """Say whether every stage can serve, and which cannot."""
        health = self._omni.health()
        status = HTTPStatus.OK if can_serve(health) else HTTPStatus.SERVICE_UNAVAILABLE
        return answer(health_form(health), status)

    async def metrics(self, accept: str) -> web.Response:
        """Put all metrics together."""
        body, content_type = self._metrics.page(accept)
        return web.Response(body=body, headers={"Content-Type": content_type})


class Api:
    """The routes over one running system."""

    def __init__(self, omni: AsyncOmni, key: Secret, watch: Watched) -> None:
        """Where there is a `key` every request for work must bear it; `watch` tells of all."""
        self._omni = omni
        self._watch = watch
        self._key = key

    def app(self, max_request_bytes: int) -> web.Application:
        """Return the application; longer bodies are refused."""
        app = web.Application(
            middlewares=[tell_errors, self._check_key], client_max_size=max_request_bytes
        )
        sessions = SessionRoute(self._omni, max_request_bytes)
        app.on_cleanup.append(sessions.close)
        app.add_routes(
            [
                web.post("/v1/generate", self._generate),
                web.get("/v1/session", sessions.serve),
                web.get("/health", self._health),
                web.get("/metrics", self._measured),
            ]
        )
        return app

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._key.is_known and request.path not in _OPEN_PATHS:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(errors="replace"), self._key.token):
                told = "the request bears no key, or a wrong one"
                return answer(_fault(code="SV003", message=told), HTTPStatus.UNAUTHORIZED)
        return await handler(request)

    async def _health(self, _request: web.Request) -> web.StreamResponse:
        return await self._watch.health()

    async def _measured(self, request: web.Request) -> web.StreamResponse:
        return await self._watch.metrics(request.headers.get("Accept", ""))

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        form = forms.read(await request.read(), GenerateForm)
        news: asyncio.Queue[StageProgress] = asyncio.Queue()
        with continued(request.headers):
            running = self._omni.submit(
                forms.prompt_of(form.prompt),
                sampling_params=form.sampling_params,
                request_id=form.request_id,
                timeout_s=form.timeout_s,
                route=forms.route_of(form),
                on_progress=news.put_nowait if form.stream and form.progress else None,
            )
        try:
            if form.stream:
                return await _streamed(request, running, news)
            return await _whole(running)
        finally:
            running.close()


@web.middleware
async def tell_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with JSON whatever goes wrong before the answer has begun."""
    try:
        return await handler(request)
    except StagemeshError as error:
        return _refusal(error)
    except web.HTTPException as error:
        form = _fault(code="SV002", message=error.reason.lower())
        allowed = {name: text for name, text in error.headers.items() if name == "Allow"}
        return answer(form, error.status, allowed)


async def _whole(running: Running) -> web.StreamResponse:
    result = await running.result()
    return answer(
        {
            "request_id": result.request_id,
            "outputs": [forms.output_form(output) for output in result.outputs],
            **forms.end_form(running),
        }
    )


async def _streamed(
    request: web.Request, running: Running, news: asyncio.Queue[StageProgress]
) -> web.StreamResponse:
    events = _Events(running, news)
    try:
        first = await events.next()
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        await response.write(first)
        await _write_rest(response, events)
    finally:
        events.close()
    await response.write_eof()
    return response


async def _write_rest(response: web.StreamResponse, events: _Events) -> None:
    try:
        while not events.ended:
            await response.write(await events.next())
    except StagemeshError as error:
        await response.write(forms.event("error", forms.error_form(error)))


class _Events:
    """Outputs and progress of one request in the order in which they appear, then its end."""

    def __init__(self, running: Running, news: asyncio.Queue[StageProgress]) -> None:
        self._running = running
        self._news = news
        self._output = asyncio.ensure_future(anext(running, None))
        self._progress = asyncio.ensure_future(news.get())
        self.ended = False

    async def next(self) -> bytes:
        """Wait for the next event; raises the error of a request that failed."""
        await asyncio.wait(
            (self._output, self._progress), return_when=asyncio.FIRST_COMPLETED
        )  # the request has a deadline of its own
        if self._progress.done():
            found = self._progress.result()
            self._progress = asyncio.ensure_future(self._news.get())
            return forms.event("progress", forms.progress_form(found))
        output = self._output.result()
        if output is None:
            self.ended = True
            return forms.event("done", forms.end_form(self._running))
        self._output = asyncio.ensure_future(anext(self._running, None))
        return forms.event("output", forms.output_form(output))

    def close(self) -> None:
        """Stop waiting."""
        self._output.cancel()
        self._progress.cancel()


def _fault(*, code: str, message: str) -> Json:
    return {"error": {"code": code, "message": message, "help": None}}


def _refusal(error: StagemeshError) -> web.Response:
    status = _status(error)
    headers = {}
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        wait_s = error.retry_after_s if isinstance(error, OverloadedError) else _RETRY_AFTER_S
        headers["Retry-After"] = str(math.ceil(wait_s))
    return answer(forms.error_form(error), status, headers)


def _status(error: StagemeshError) -> HTTPStatus:
    match error:
        case DiagnosticError() | InvalidRequestError():
            return HTTPStatus.BAD_REQUEST
        case DeadlineError():
            return HTTPStatus.GATEWAY_TIMEOUT
        case ClosedError() | RequestError(retryable=True):
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.INTERNAL_SERVER_ERROR


def answer(
    form: Json, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> web.Response:
    """Answer with a whole document."""
    return web.Response(
        body=forms.document(form), status=status, content_type=_JSON, headers=headers
    )
