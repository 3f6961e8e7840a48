"""Every engine of ours keeps the contract of engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagemesh.engines._fake import FakeEngine
from stagemesh.engines._generation import GenerationEngine
from stagemesh.engines.ar.engine import ArEngine
from stagemesh.engines.ar.options import ArOptions
from stagemesh.engines.fake import FakeOptions
from stagemesh.engines.generation import GenerationOptions
from stagemesh.spec.engine import Engine, EngineContext, SessionEngine
from stagemesh.spec.payload import Payload
from stagemesh.testing.engine_conformance import EngineCase, EngineConformance, joined_text
from stagemesh.testing.engine_context import engine_context
from stagemesh.testing.session_conformance import SessionCase, SessionConformance
from tests.engines import tiny

pytestmark = pytest.mark.slow

VOCABULARY = tiny.CONFIGS["llama"].vocab_size
WORDS = ("seven", "ideas", "programme")
FOLDER = Path(__file__).parent


def context(args: object, loader: str | None = None) -> EngineContext:
    """Return what an engine that reads no checkpoint is given."""
    return engine_context(args, checkpoint=FOLDER, loader=loader)


class WordCase:
    """Requests that are words; both engines below answer with text."""

    num_variants = len(WORDS)

    def params(self, variant: int) -> Mapping[str, object]:
        """No parameters."""
        del variant
        return {}

    def whole(self, variant: int) -> Payload:
        """A word."""
        return tiny.text_payload(WORDS[variant])

    def parts(self, variant: int) -> Sequence[Payload]:
        """A word in two parts."""
        return [tiny.text_payload(WORDS[variant][:2]), tiny.text_payload(WORDS[variant][2:])]

    def value(self, payloads: Sequence[Payload]) -> object:
        """All the text."""
        return joined_text(payloads)


class FakeCase(WordCase):
    """The fake engine with a program."""

    def make(self) -> Engine:
        """Three outputs, a step apart."""
        options = FakeOptions(num_outputs=3, output_bytes=8, delay_steps=1)
        return FakeEngine(context(options))

    def bad(self) -> Sequence[tuple[Mapping[str, object], Payload]]:
        """A parameter that does not exist, an input that fails, and a failing second output."""
        programs = ({"speed": 1}, {"fail_at": "append"}, {"fail_at": "step", "fail_step": 1})
        return [(program, self.whole(0)) for program in programs]


class FakeTalkCase(WordCase):
    """The fake engine, which begins with what it has heard before."""

    def make(self) -> SessionEngine:
        """Two outputs, and room for two sessions."""
        return FakeEngine(engine_context(FakeOptions(num_outputs=2), max_sessions=2))


class GenerationCase(WordCase):
    """The generation engine over a module that spells words."""

    def make(self) -> Engine:
        """Two requests in a batch."""
        options = GenerationOptions(max_num_seqs=2)
        loader = "tests.engines.counting:load"
        return GenerationEngine(context(options, loader))

    def bad(self) -> Sequence[tuple[Mapping[str, object], Payload]]:
        """There are no parameters, digits cannot be spelled, and the rest breaks by itself."""
        words = ("1", "?", "e*")
        return [({"speed": 1}, self.whole(0)), *(({}, tiny.text_payload(word)) for word in words)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCase:
    """The `ar` engine over token ids; even variants are greedy, odd ones drawn."""

    folder: Path
    num_variants: int = 4

    def make(self) -> Engine:
        """Small blocks and small steps."""
        options = ArOptions(block_size=4, max_num_batched_tokens=8, max_num_seqs=3)
        return ArEngine(tiny.context(self.folder, options))

    def params(self, variant: int) -> Mapping[str, object]:
        """Nine tokens and more."""
        drawn = {"temperature": 1.5, "top_k": 50, "top_p": 0.95, "seed": variant}
        return {"max_tokens": 9 + variant, "ignore_eos": True} | (drawn if variant % 2 else {})

    def whole(self, variant: int) -> Payload:
        """A prompt whose length depends on the variant."""
        return tiny.token_payload(self._prompt(variant))

    def parts(self, variant: int) -> Sequence[Payload]:
        """The prompt in three parts, the last of one token."""
        prompt = self._prompt(variant)
        return [tiny.token_payload(part) for part in (prompt[:3], prompt[3:-1], prompt[-1:])]

    def bad(self) -> Sequence[tuple[Mapping[str, object], Payload]]:
        """Parameters that cannot be used, a token that does not exist, and nothing to draw from."""
        nothing = {"temperature": 1.0, "min_tokens": 1, "stop_token_ids": list(range(VOCABULARY))}
        ways: tuple[dict[str, object], ...] = (
            {"top_p": 2.0},
            {"stop_token_ids": [10**6], "min_tokens": 1},
            {"temperature": 1e-40},
            nothing,
        )
        return [*((params, self.whole(0)) for params in ways), ({}, tiny.token_payload([10**6]))]

    def value(self, payloads: Sequence[Payload]) -> object:
        """All the tokens."""
        return [token for payload in payloads for token in _tokens(payload)]

    def _prompt(self, variant: int) -> list[int]:
        return [(37 * variant + 11 * place) % 250 for place in range(5 + 7 * variant)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCase:
    """The `ar` engine where it owns the tokenizer."""

    folder: Path
    num_variants: int = 3

    def make(self) -> Engine:
        """An engine for text."""
        return ArEngine(tiny.context(self.folder, ArOptions(), owns_tokenizer=True))

    def params(self, variant: int) -> Mapping[str, object]:
        """Thirty tokens."""
        return {"max_tokens": 30, "ignore_eos": True, "temperature": 1.0, "seed": variant}

    def whole(self, variant: int) -> Payload:
        """A question."""
        return tiny.text_payload(f"what is {WORDS[variant]}")

    def parts(self, variant: int) -> Sequence[Payload]:
        """The question in two parts."""
        return [tiny.text_payload("what is "), tiny.text_payload(WORDS[variant])]

    def bad(self) -> Sequence[tuple[Mapping[str, object], Payload]]:
        """A parameter that does not exist, and an empty question."""
        return [({"speed": 1}, self.whole(0)), ({}, tiny.text_payload(" "))]

    def value(self, payloads: Sequence[Payload]) -> object:
        """All the text."""
        return joined_text(payloads)


class TestFakeSessions(SessionConformance):
    """The fake engine keeps sessions."""

    @pytest.fixture
    def case(self) -> SessionCase:
        """It."""
        return FakeTalkCase()


class TestFake(EngineConformance):
    """The fake engine."""

    @pytest.fixture
    def case(self) -> EngineCase:
        """Programmed outputs."""
        return FakeCase()


class TestGeneration(EngineConformance):
    """The generation engine."""

    @pytest.fixture
    def case(self) -> EngineCase:
        """Spelling."""
        return GenerationCase()


class TestArWithTokens(EngineConformance):
    """The `ar` engine, tokens in and out."""

    @pytest.fixture
    def case(self, tiny_model: Callable[[str], Path]) -> EngineCase:
        """A tiny model."""
        return TokenCase(folder=tiny_model("llama"))


class TestArWithText(EngineConformance):
    """The `ar` engine, text in and out."""

    @pytest.fixture
    def case(self, tiny_model: Callable[[str], Path]) -> EngineCase:
        """A tiny model."""
        return TextCase(folder=tiny_model("qwen2"))


def _tokens(payload: Payload) -> list[int]:
    return payload.buffer("token_ids").data.cast("q").tolist()
