"""The control socket: what whoever runs a server may ask of it.

GET  /state   the plan's stages, their replicas and what they do
POST /scale   `{"stage": "talker", "replicas": 3}`
"""

from __future__ import annotations

from aiohttp import web

from stagemesh.runtime.omni import AsyncOmni
from stagemesh.serve import forms
from stagemesh.serve.forms import ScaleForm
from stagemesh.serve.http import answer, tell_errors
from stagemesh.serve.state import state_form


class Control:
    """The routes of the control socket."""

    def __init__(self, omni: AsyncOmni) -> None:
        """Look at `omni` and change it when asked to."""
        self._omni = omni

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[tell_errors])
        app.add_routes([web.get("/state", self._state), web.post("/scale", self._scale)])
        return app

    async def _state(self, _request: web.Request) -> web.StreamResponse:
        return answer(state_form(self._omni))

    async def _scale(self, request: web.Request) -> web.StreamResponse:
        form = forms.read(await request.read(), ScaleForm)
        await self._omni.scale(form.stage, form.replicas)
        return answer(state_form(self._omni))
