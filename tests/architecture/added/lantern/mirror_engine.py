"""The running half of the engine `mirror`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stagemesh.spec.engine import (
    EngineContext,
    EngineFault,
    EngineOutput,
    EngineRequest,
    FaultKind,
    Finish,
)
from stagemesh.spec.payload import MetaValue, Payload


@dataclass(eq=False, slots=True, kw_only=True)
class _Request:
    """What is left to give back."""

    text: str = ""
    complete: bool = False
    paused: bool = False
    fault: EngineFault | None = None

    def can_go_on(self) -> bool:
        return not self.paused and bool(self.text or self.complete or self.fault)


class MirrorEngine:
    """Gives one letter of every request back in each step."""

    def __init__(self, context: EngineContext) -> None:
        """Need nothing of the context."""
        del context
        self._requests: dict[str, _Request] = {}

    def load(self) -> None:
        """There are no weights."""

    def add(self, request: EngineRequest) -> None:
        """Take a request."""
        self._requests[request.request_id] = _Request()

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Keep the text of one input; an input without text fails its request."""
        if (request := self._requests.get(request_id)) is not None:
            text = payload.meta.get("text")
            if isinstance(text, str):
                request.text += text
            else:
                message = "there is nothing to mirror"
                request.fault = EngineFault(kind=FaultKind.INVALID_REQUEST, message=message)
            request.complete = last
        payload.release()

    def wants_input(self, request_id: str) -> bool:
        """Whether there is nothing left to give back."""
        request = self._requests.get(request_id)
        return request is None or request.fault is not None or not request.text

    def step(self) -> list[EngineOutput]:
        """Give one letter of each request back."""
        ready = [name for name, request in self._requests.items() if request.can_go_on()]
        return [self._give(name, self._requests[name]) for name in ready]

    def _give(self, name: str, request: _Request) -> EngineOutput:
        if request.fault is not None:
            del self._requests[name]
            return EngineOutput(request_id=name, error=request.fault)
        letter, request.text = request.text[:1], request.text[1:]
        done = request.complete and not request.text
        if done:
            del self._requests[name]
        return EngineOutput(
            request_id=name,
            payloads=(Payload(meta={"text": letter}),) if letter else (),
            finish=Finish.STOP if done else None,
        )

    def pause(self, request_id: str) -> None:
        """Hold a request back."""
        if request_id in self._requests:
            self._requests[request_id].paused = True

    def resume(self, request_id: str) -> None:
        """Let a request go on."""
        if request_id in self._requests:
            self._requests[request_id].paused = False

    def cancel(self, request_id: str) -> None:
        """Forget a request."""
        self._requests.pop(request_id, None)

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """There are no actions."""
        del args
        raise KeyError(name)

    def has_work(self) -> bool:
        """Whether some request can go on."""
        return any(request.can_go_on() for request in self._requests.values())

    def close(self) -> None:
        """Forget everything."""
        self._requests.clear()
