"""One request of the `ar` engine: its prompt as it arrives, and its answer as it grows."""

from __future__ import annotations

import array
from collections.abc import Iterable

from stagemesh.engines.ar.options import ArParams
from stagemesh.engines.ar.sampling import Sampler
from stagemesh.engines.ar.scheduler import Sequence
from stagemesh.engines.ar.tokens import Detokenizer, StopText, Tokenizer
from stagemesh.spec.engine import EngineFault, EngineOutput, Finish
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Buffer, MetaValue, Payload


@frozen
class Bounds:
    """What requests of one engine may use."""

    max_model_len: int
    """Longest sequence."""
    vocab_size: int
    """Token ids are below it."""
    tokenizer: Tokenizer | None
    """Where the stage turns text into tokens and back."""


class Request:
    """A live request. What takes the user's values raises `ValueError` with a sentence for them."""

    def __init__(self, request_id: str, bounds: Bounds) -> None:
        """It waits for parameters and a prompt."""
        self._bounds = bounds
        self.sequence = Sequence(request_id=request_id)
        self.tokens: list[int] = []
        """Prompt and answer."""
        self.num_prompt = 0
        """Tokens of the prompt, once it is whole."""
        self.fault: EngineFault | None = None
        """Why it failed, until that is told."""
        self.sampler: Sampler | None = None
        self._params = ArParams()
        self._ends: frozenset[int] = frozenset()
        self._texts: list[str] = []
        self._system: str | None = None
        self._limit = 0
        self._detokenizer = None if bounds.tokenizer is None else Detokenizer(bounds.tokenizer)
        self._stop = StopText(())
        self._untold: list[int] = []

    @property
    def num_answered(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - self.num_prompt

    def configure(self, params: ArParams, ends: frozenset[int], sampler: Sampler) -> None:
        """Take the parameters; `ends` are all tokens that end the answer."""
        if params.stop and self._bounds.tokenizer is None:
            raise ValueError("`stop` needs a stage that owns the tokenizer")
        _within("stop_token_ids", params.stop_token_ids, self._bounds.vocab_size)
        self._params, self._ends, self.sampler = params, ends, sampler
        self._stop = StopText(params.stop)

    def append(self, payload: Payload, *, last: bool) -> None:
        """Take a part of the prompt: `text` (and `system`) in `meta`, or the buffer `token_ids`."""
        payload.only(meta=("text", "system"), buffers=("token_ids",))
        text, system = _text(payload, "text"), _text(payload, "system")
        if system is not None:
            self._system = system
        if text is not None:
            self._texts.append(text)
        for buffer in payload.buffers:
            self._take(_token_ids(buffer, self._bounds.vocab_size))
        if self._texts and self.tokens:
            raise ValueError("a prompt is either text or `token_ids`, got both")
        if last:
            self._complete()

    def accept(self, token: int) -> EngineOutput:
        """Take the next token of the answer and say what there is to tell."""
        self.tokens.append(token)
        self.sequence.num_tokens += 1
        self._untold.append(token)
        first = self.num_answered == 1
        units = {"tokens": 1.0} | ({"prompt_tokens": float(self.num_prompt)} if first else {})
        finish, text = self._read(token)
        return EngineOutput(
            request_id=self.sequence.request_id,
            payloads=self._payloads(text, finish),
            finish=finish,
            units=units,
        )

    def _take(self, tokens: list[int]) -> None:
        self.tokens += tokens
        allowed = self._bounds.max_model_len - 1
        if len(self.tokens) > allowed:
            raise ValueError(f"the prompt has `{len(self.tokens)}` tokens, allowed are `{allowed}`")
        self.sequence.num_tokens = len(self.tokens)

    def _complete(self) -> None:
        if not self.tokens:
            text = "".join(self._texts)
            if not text.strip():
                raise ValueError("the prompt is empty")
            if self._bounds.tokenizer is None:
                raise ValueError("the stage takes `token_ids`, got text")
            self._take(self._bounds.tokenizer.encode(text, self._system))
        self.num_prompt = len(self.tokens)
        self._limit = min(self._params.max_tokens, self._bounds.max_model_len - self.num_prompt)
        self.sequence.complete = True

    def _read(self, token: int) -> tuple[Finish | None, str]:
        """Whether `token` ends the answer, and the text that it makes certain."""
        ended = token in self._ends
        text = "" if ended or self._detokenizer is None else self._detokenizer.push(token)
        finish = Finish.STOP if ended else None
        if finish is None and self.num_answered >= self._limit:
            finish = Finish.LENGTH
        if finish is not None and self._detokenizer is not None:
            text += self._detokenizer.flush()
        text = self._stop.push(text, may_stop=self.num_answered >= self._params.min_tokens)
        if self._stop.found:
            return Finish.STOP, text
        return finish, text + (self._stop.flush() if finish is not None else "")

    def _payloads(self, text: str, finish: Finish | None) -> tuple[Payload, ...]:
        """One payload with all untold tokens, or none while a stage of text has no new text."""
        meta: dict[str, MetaValue] = {}
        if self._bounds.tokenizer is not None:
            if not text and finish is None:
                return ()
            meta["text"] = text
        data = memoryview(array.array("q", self._untold)).cast("B")
        shape = (len(self._untold),)
        self._untold = []
        buffer = Buffer(name="token_ids", dtype="int64", shape=shape, data=data)
        return (Payload(meta=meta, buffers=(buffer,)),)


def _token_ids(buffer: Buffer, vocab_size: int) -> list[int]:
    if buffer.dtype != "int64" or len(buffer.shape) != 1:
        got = f"{buffer.dtype} {list(buffer.shape)}"
        raise ValueError(f"`token_ids` must be `int64 [n]`, got `{got}`")
    tokens = buffer.data.cast("q").tolist()
    _within("token_ids", tokens, vocab_size)
    return tokens


def _within(name: str, tokens: Iterable[int], vocab_size: int) -> None:
    """Raise `ValueError` for a token that the vocabulary does not have."""
    wrong = next((token for token in tokens if not 0 <= token < vocab_size), None)
    if wrong is not None:
        raise ValueError(f"`{name}` must be from `0` to `{vocab_size - 1}`, got `{wrong}`")


def _text(payload: Payload, name: str) -> str | None:
    """Return a text of the metadata, or `None` when it has none."""
    value = payload.meta.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{name}` must be text, got `{value}`")
    return value
