"""What a request may say about its route."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from stagemesh.plan.values import Plan
from stagemesh.runtime.core.actions import REQUEST_ID
from stagemesh.runtime.shapes import shapes_of
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import Policy
from stagemesh.spec.payload import Payload

PROMPT: Final = "prompt"
"""The key that stands for everything in the prompt."""


@frozen
class RouteHints:
    """Where a request would like to be served, and what it weighs."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """What `routing: hash` may hash, by the name in `key`, such as `{"session": "alice"}`."""
    cost: int = 1
    """What it counts against `least_queue` and `hash`, beside others, such as its steps."""
    follows: str | None = None
    """The name of a running request whose replicas it shares."""


def check_hints(hints: object, plan: Plan) -> list[Diagnostic]:
    """Say what is wrong with them, whatever they are.

    A key that no stage looks up is wrong where any is routed by a key. Where none is, keys are left
    alone: clients that name their session serve every layout of a model.
    """
    found = [
        Diagnostic(
            code="RT017",
            message=f"a route is given as `RouteHints`: {flaw}",
            help='such as `RouteHints(keys={"session": "alice"})`',
        )
        for flaw in _flaws(hints)
    ]
    if not found and isinstance(hints, RouteHints) and hints.keys:
        known = {stage.key for stage in shapes_of(plan) if stage.routing.policy is Policy.HASH}
        found = [
            Diagnostic(
                code="RT017",
                message=f"no stage is routed by `{key:.40}`",
                help=did_you_mean(key, known),
            )
            for key in hints.keys
            if known and key not in known
        ]
    return found


def routing_keys(name: str, prompt: Payload, hints: RouteHints) -> Mapping[str, str]:
    """Everything that a request may be routed by; what its user says goes before."""
    return _Keys(name, prompt, hints)


def _flaws(hints: object) -> Iterator[str]:
    if not isinstance(hints, RouteHints):
        yield f"got `{type(hints).__name__}`"
        return
    if not isinstance(hints.keys, Mapping):
        yield f"`keys` is `{type(hints.keys).__name__}`, not a mapping"
    elif not all(isinstance(text, str) for item in hints.keys.items() for text in item):
        yield "`keys` holds more than texts"
    if not _is_cost(hints.cost):
        yield f"`cost` is a whole number of at least 1: got `{hints.cost!r:.40}`"
    if not isinstance(hints.follows, str | None):
        yield f"`follows` names a request: got `{hints.follows!r:.40}`"


def _is_cost(cost: object) -> bool:
    return isinstance(cost, int) and not isinstance(cost, bool) and cost >= 1


class _Keys(Mapping[str, str]):
    """The keys of one request; the prompt is read only where a stage routes by it."""

    def __init__(self, name: str, prompt: Payload, hints: RouteHints) -> None:
        self._given = {REQUEST_ID: name, **hints.keys}
        self._prompt = prompt

    def __getitem__(self, key: str) -> str:
        if key == PROMPT and key not in self._given:
            return _digest(self._prompt)
        return self._given[key]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._given, PROMPT: ""})

    def __len__(self) -> int:
        return len(self._given | {PROMPT: ""})


def _digest(prompt: Payload) -> str:
    digest = hashlib.blake2b(repr(sorted(prompt.meta.items())).encode(errors="replace"))
    for buffer in prompt.buffers:
        digest.update(f"{buffer.name} {buffer.dtype} {buffer.shape}".encode())
        digest.update(buffer.data)
    return digest.hexdigest()
