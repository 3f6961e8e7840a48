"""Requests as users give them, checked and completed."""

from __future__ import annotations

import itertools
from typing import Final, TypeAlias

from stagemesh.plan.values import Plan
from stagemesh.runtime.checks import check_prompt, check_timeout
from stagemesh.runtime.hints import RouteHints, check_hints
from stagemesh.runtime.params import RequestRules, SamplingParams
from stagemesh.runtime.running import Call, OnProgress
from stagemesh.spec.payload import Payload

REQUEST_S: Final = 600.0
"""Seconds that a request, or the opening of a session, may take unless something else is said."""

Prompt: TypeAlias = str | Payload
"""What a request begins with: a text, or a payload for models that take more."""


class Calls:
    """Makes the requests of one system."""

    def __init__(self, plan: Plan) -> None:
        """Learn what the stages of `plan` can be told."""
        self._plan = plan
        self._rules = RequestRules(plan)
        self._names = itertools.count()

    def of(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None,
        request_id: str | None,
        timeout_s: float | None,
        on_progress: OnProgress | None,
        route: RouteHints | None = None,
    ) -> Call:
        """Return a request, or raise `DiagnosticError` with all that is wrong with it."""
        route = RouteHints() if route is None else route
        found = check_prompt(prompt) + check_timeout(timeout_s) + check_hints(route, self._plan)
        given = {} if sampling_params is None else sampling_params
        params = self._rules.merge(given, found)
        return Call(
            request_id=request_id or f"request-{next(self._names)}",
            prompt=Payload(meta={"text": prompt}) if isinstance(prompt, str) else prompt,
            params=params,
            timeout_s=timeout_s,
            on_progress=on_progress,
            route=route,
        )
