"""The control socket: what whoever runs a server may ask of it.

GET  /state   the plan's stages, their replicas and what they do
POST /scale   `{"stage": "talker", "replicas": 3}`
"""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from stagemesh.runtime.omni import AsyncOmni
from stagemesh.serve import forms
from stagemesh.serve.forms import Json, ScaleForm
from stagemesh.serve.http import answer, tell_errors
from stagemesh.serve.state import state_form


class Controlled(Protocol):
    """What is looked at and changed."""

    async def state(self) -> Json:
        """Say everything that is known of it."""
        ...

    async def scale(self, stage: str, replicas: int) -> None:
        """Give a stage so many replicas; raises what `AsyncOmni.scale` raises."""
        ...


class OwnSystem:
    """The system of this process."""

    def __init__(self, omni: AsyncOmni) -> None:
        """`omni` is it."""
        self._omni = omni

    async def state(self) -> Json:
        """Look at it."""
        return state_form(self._omni)

    async def scale(self, stage: str, replicas: int) -> None:
        """Change it."""
        await self._omni.scale(stage, replicas)


class Control:
    """The routes of the control socket."""

    def __init__(self, system: Controlled) -> None:
        """Look at `system` and change it when asked to."""
        self._system = system

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[tell_errors])
        app.add_routes([web.get("/state", self._state), web.post("/scale", self._scale)])
        return app

    async def _state(self, _request: web.Request) -> web.StreamResponse:
        return answer(await self._system.state())

    async def _scale(self, request: web.Request) -> web.StreamResponse:
        form = forms.read(await request.read(), ScaleForm)
        await self._system.scale(form.stage, form.replicas)
        return answer(await self._system.state())
