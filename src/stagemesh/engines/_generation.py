"""The running half of the `generation` engine: sessions of a module, batched by bucket.

Each session that is ready waits in line from the moment it became ready; a step takes the bucket of
the first in line and everyone behind it with an equal key, at most `max_num_seqs`. Served sessions
go to the end of the line, so no bucket starves.

A module that refuses a parameter or an input (`ValueError`) fails that request alone. A batch that
raises fails all of its requests: sessions have state, and running some of them again after a
half-done unit could give a wrong answer silently.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import torch

from stagemesh.engines._params import typed_params
from stagemesh.engines.generation import GenerationOptions
from stagemesh.spec.engine import (
    EngineContext,
    EngineFault,
    EngineOutput,
    EngineRequest,
    FaultKind,
    Finish,
)
from stagemesh.spec.generation import (
    GenerationLoader,
    GenerationModule,
    GenerationSession,
    ModuleContext,
    ModuleOutput,
)
from stagemesh.spec.payload import MetaValue, Payload
from stagemesh.spec.reference import resolve

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    """A live request; changes as it goes."""

    session: GenerationSession | None = None
    bucket: Hashable | None = None
    place: int = 0
    complete: bool = False
    paused: bool = False
    fault: EngineFault | None = None

    def can_go_on(self) -> bool:
        return not self.paused and (self.fault is not None or self.bucket is not None)


def make_engine(context: EngineContext) -> GenerationEngine:
    """Make the engine of one rank."""
    return GenerationEngine(context)


class GenerationEngine:
    """See the module; has no control actions."""

    def __init__(self, context: EngineContext) -> None:
        """Keep what `load` needs."""
        assert isinstance(context.args, GenerationOptions)
        assert context.world_size == 1, "a replica is one rank here"
        self._context = context
        self._options = context.args
        self._module: GenerationModule | None = None
        self._requests: dict[str, _Request] = {}
        self._places = itertools.count()

    def load(self) -> None:
        """Call the stage's loader."""
        context = self._context
        if context.loader is None:
            message = f"stage `{context.stage}` names no loader, which engine `generation` needs"
            raise ValueError(message)
        if torch.device(context.device).type == "cpu":
            torch.set_num_threads(self._options.num_threads)
        loader = cast("GenerationLoader", resolve(context.loader))
        self._module = loader(
            ModuleContext(
                folder=context.folder,
                device=context.device,
                args=context.model_args,
                async_chunk=context.async_chunk,
            )
        )

    def add(self, request: EngineRequest) -> None:
        """Open a session of the module."""
        assert self._module is not None, "load comes first"
        assert request.request_id not in self._requests, "request ids are unique"
        state = _Request()
        self._requests[request.request_id] = state
        try:
            params: object = typed_params(self._context.model_params, request.params)
            state.session = self._module.open(request.request_id, params)
        except Exception as error:  # noqa: BLE001  # the edge of one request
            state.fault = _fault(error)

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Push one input into the session."""
        state = self._requests.get(request_id)
        try:
            if state is not None and state.fault is None and state.session is not None:
                assert not state.complete, "nothing follows the last input"
                state.complete = last
                state.session.push(payload, last=last)
                self._queue(state)
        except Exception as error:  # noqa: BLE001  # the edge of one request
            assert state is not None
            state.fault = _fault(error)
        finally:
            payload.release()

    def wants_input(self, request_id: str) -> bool:
        """Whether the session has no unit that could be run."""
        state = self._requests.get(request_id)
        return state is None or state.fault is not None or state.bucket is None

    def step(self) -> list[EngineOutput]:
        """Tell failures, then run the batch of the first in line."""
        outputs = self._failed()
        batch = self._batch()
        if not batch:
            return outputs
        assert self._module is not None
        sessions = [state.session for state in batch.values() if state.session is not None]
        try:
            results = self._module.run(sessions)
            if len(results) != len(sessions):
                message = f"module gave {len(results)} outputs for {len(sessions)} sessions"
                raise RuntimeError(message)  # noqa: TRY301  # reported like the module's own
        except Exception as error:  # noqa: BLE001  # the edge of these requests
            for state in batch.values():
                state.fault = _fault(error, FaultKind.INTERNAL)
            return outputs + self._failed()
        for (name, state), result in zip(batch.items(), results, strict=True):
            outputs.append(self._output(name, state, result))
        return outputs

    def pause(self, request_id: str) -> None:
        """Hold a request back."""
        if request_id in self._requests:
            self._requests[request_id].paused = True

    def resume(self, request_id: str) -> None:
        """Let a request go on, in the place it had."""
        if request_id in self._requests:
            self._requests[request_id].paused = False

    def cancel(self, request_id: str) -> None:
        """Forget a request and its session."""
        self._requests.pop(request_id, None)

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """Raise `KeyError`: there are no control actions."""
        del args
        raise KeyError(name)

    def has_work(self) -> bool:
        """Whether some request can go on."""
        return any(state.can_go_on() for state in self._requests.values())

    def close(self) -> None:
        """Forget everything."""
        self._requests.clear()
        self._module = None

    def _queue(self, state: _Request) -> None:
        """Ask the session for its next unit; it joins the line's end unless it stands in it."""
        assert state.session is not None
        waiting = state.bucket is not None
        state.bucket = state.session.bucket()
        if state.bucket is None and state.complete:
            message = "the module wants more input after the last"
            raise RuntimeError(message)
        if not waiting:
            state.place = next(self._places)

    def _failed(self) -> list[EngineOutput]:
        told = {
            name: state.fault
            for name, state in self._requests.items()
            if state.fault is not None and not state.paused
        }
        for name in told:
            del self._requests[name]
        return [EngineOutput(request_id=name, error=fault) for name, fault in told.items()]

    def _batch(self) -> dict[str, _Request]:
        ready = [(name, state) for name, state in self._requests.items() if state.can_go_on()]
        ready.sort(key=lambda item: item[1].place)
        same = [item for item in ready if item[1].bucket == ready[0][1].bucket]
        return dict(same[: self._options.max_num_seqs])

    def _output(self, request_id: str, state: _Request, result: ModuleOutput) -> EngineOutput:
        error = None
        if result.done:
            del self._requests[request_id]
        else:
            state.bucket = None
            try:
                self._queue(state)
            except Exception as raised:  # noqa: BLE001  # the edge of one request
                error = _fault(raised, FaultKind.INTERNAL)
                del self._requests[request_id]
        return EngineOutput(
            request_id=request_id,
            payloads=result.payloads,
            finish=Finish.STOP if result.done else None,
            error=error,
            units=result.units,
        )


def _fault(error: Exception, kind: FaultKind | None = None) -> EngineFault:
    """Turn an exception into a fault: `ValueError` is the request's, all else is logged as ours."""
    if kind is None and isinstance(error, ValueError):
        return EngineFault(kind=FaultKind.INVALID_REQUEST, message=str(error))
    _LOG.error("a unit of work failed", exc_info=error)
    return EngineFault(kind=FaultKind.INTERNAL, message=f"{type(error).__name__}: {error}")
