"""The stepper of the `ar` engine: schedule, run the model once, pick tokens, tell what is new."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import torch

from stagemesh.engines._params import typed_params
from stagemesh.engines.ar.blocks import BlockPool
from stagemesh.engines.ar.network import Network
from stagemesh.engines.ar.options import ArOptions, ArParams
from stagemesh.engines.ar.request import Bounds, Request
from stagemesh.engines.ar.sampling import Sampler, pick_all
from stagemesh.engines.ar.scheduler import Chunk, Scheduler
from stagemesh.engines.ar.tokens import Tokenizer
from stagemesh.spec.engine import (
    EngineContext,
    EngineFault,
    EngineOutput,
    EngineRequest,
    FaultKind,
)
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import MetaValue, Payload

_LOG: Final = logging.getLogger(__name__)


@frozen
class _Loaded:
    """What `load` makes."""

    network: Network
    scheduler: Scheduler
    pool: BlockPool
    bounds: Bounds


def make_engine(context: EngineContext) -> ArEngine:
    """Make the engine of one rank."""
    return ArEngine(context)


class ArEngine:
    """See the module; `call` takes `stats`, which counts requests, blocks and preemptions."""

    def __init__(self, context: EngineContext) -> None:
        """Keep what `load` needs."""
        assert isinstance(context.args, ArOptions)
        assert context.world_size == 1, "a replica is one rank here"
        self._context = context
        self._options = context.args
        self._device = torch.device(context.device)
        self._loaded: _Loaded | None = None
        self._requests: dict[str, Request] = {}

    def load(self) -> None:
        """Load model, tokenizer and cache; raises `ValueError` for what cannot be served."""
        options = self._options
        if self._device.type == "cpu":
            torch.set_num_threads(options.num_threads)
        folder = self._context.folder
        network = Network(folder, options, self._device)
        pool = BlockPool(network.limits.num_blocks)
        self._loaded = _Loaded(
            network=network,
            pool=pool,
            scheduler=Scheduler(
                pool,
                block_size=options.block_size,
                max_num_seqs=options.max_num_seqs,
                max_num_batched_tokens=options.max_num_batched_tokens,
            ),
            bounds=Bounds(
                max_model_len=network.limits.max_model_len,
                vocab_size=network.limits.vocab_size,
                tokenizer=Tokenizer(folder) if self._context.owns_tokenizer else None,
            ),
        )

    def add(self, request: EngineRequest) -> None:
        """Take a request; wrong parameters fail it with the next step."""
        loaded = self._ready()
        assert request.request_id not in self._requests, "request ids are unique"
        state = Request(request.request_id, loaded.bounds)
        self._requests[request.request_id] = state
        loaded.scheduler.add(state.sequence)
        try:
            params = typed_params(ArParams, request.params)
            ends = frozenset(params.stop_token_ids)
            if not params.ignore_eos:
                ends |= loaded.network.limits.end_tokens
            state.configure(params, ends, Sampler(params, ends, self._device))
        except ValueError as error:
            self._fail(state, FaultKind.INVALID_REQUEST, str(error))

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Take a part of the prompt; tokens are computed as they come, text once it is whole."""
        state = self._requests.get(request_id)
        try:
            if state is not None and state.fault is None:
                assert not state.sequence.complete, "nothing follows the last input"
                state.append(payload, last=last)
        except ValueError as error:
            assert state is not None
            self._fail(state, FaultKind.INVALID_REQUEST, str(error))
        finally:
            payload.release()

    def wants_input(self, request_id: str) -> bool:
        """Whether all tokens that can be computed are."""
        state = self._requests.get(request_id)
        return state is None or state.fault is not None or not state.sequence.num_missing

    def step(self) -> list[EngineOutput]:
        """Tell failures, then run the model once for what the scheduler chooses."""
        loaded = self._ready()
        outputs = self._failed()
        # attention wants those with one token together, in front
        chunks = sorted(loaded.scheduler.schedule(), key=lambda chunk: chunk.count > 1)
        if not chunks:
            return outputs
        try:
            picked = self._compute(loaded.network, chunks)
        except Exception as error:  # noqa: BLE001  # the edge of these requests
            for chunk in chunks:
                self._break(self._requests[chunk.sequence.request_id], error)
            return outputs + self._failed()
        for chunk in chunks:
            loaded.scheduler.computed(chunk)
        told = [self._accept(state, token) for state, token in picked]
        return outputs + [output for output in told if output is not None] + self._failed()

    def pause(self, request_id: str) -> None:
        """Hold a request back; its blocks may be taken for others and are then computed again."""
        if request_id in self._requests:
            self._requests[request_id].sequence.paused = True

    def resume(self, request_id: str) -> None:
        """Let a request go on."""
        if request_id in self._requests:
            self._requests[request_id].sequence.paused = False

    def cancel(self, request_id: str) -> None:
        """Forget a request and free its blocks."""
        state = self._requests.pop(request_id, None)
        if state is not None and state.fault is None:
            self._ready().scheduler.remove(request_id)

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """Count things for `stats`; raise `KeyError` for any other name."""
        del args
        if name != "stats":
            raise KeyError(name)
        loaded = self._ready()
        return {
            "requests": len(self._requests),
            "blocks": loaded.pool.num_blocks,
            "free_blocks": loaded.pool.num_free,
            "preemptions": loaded.scheduler.num_preemptions,
        }

    def has_work(self) -> bool:
        """Whether some request can go on or has a failure to tell."""
        if self._loaded is None:
            return False
        told = (
            state.fault is not None and not state.sequence.paused
            for state in self._requests.values()
        )
        return any(told) or self._loaded.scheduler.has_work()

    def close(self) -> None:
        """Forget everything and let go of the model and the cache."""
        self._requests.clear()
        self._loaded = None

    def _ready(self) -> _Loaded:
        assert self._loaded is not None, "load comes first, and nothing comes after close"
        return self._loaded

    def _compute(
        self, network: Network, chunks: Sequence[Chunk]
    ) -> list[tuple[Request, int | Exception]]:
        """Run the chunks; return who gets which token, or why not."""
        tokens: list[int] = []
        states: list[Request] = []
        rows = []
        for chunk in chunks:
            state = self._requests[chunk.sequence.request_id]
            tokens += state.tokens[chunk.start : chunk.start + chunk.count]
            if chunk.yields_token:
                assert state.sampler is not None
                states.append(state)
                rows.append((state.sampler, state.tokens, state.num_answered))
        scores_yv = network.run(chunks, tokens)
        return list(zip(states, pick_all(scores_yv, rows) if rows else [], strict=True))

    def _accept(self, state: Request, token: int | Exception) -> EngineOutput | None:
        """Give a request its token; `None` when it has failed instead."""
        if isinstance(token, Exception):
            self._break(state, token)
            return None
        try:
            output = state.accept(token)
        except Exception as error:  # noqa: BLE001  # the edge of one request
            self._break(state, error)
            return None
        if output.finish is not None:
            del self._requests[output.request_id]
            self._ready().scheduler.remove(output.request_id)
        return output

    def _break(self, state: Request, error: Exception) -> None:
        """Fail a request for a fault of ours."""
        _LOG.error("a step failed", exc_info=error)
        self._fail(state, FaultKind.INTERNAL, f"{type(error).__name__}: {error}")

    def _fail(self, state: Request, kind: FaultKind, message: str) -> None:
        """Free what the request holds now, and tell its failure with the next step."""
        state.fault = EngineFault(kind=kind, message=message)
        self._ready().scheduler.remove(state.sequence.request_id)

    def _failed(self) -> list[EngineOutput]:
        told = {
            name: state.fault
            for name, state in self._requests.items()
            if state.fault is not None and not state.sequence.paused
        }
        for name in told:
            del self._requests[name]
        return [EngineOutput(request_id=name, error=fault) for name, fault in told.items()]
