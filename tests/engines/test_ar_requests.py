"""Requests of the `ar` engine: how they end, what they put out, and what they are refused for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stagemesh.engines.ar.engine import ArEngine
from stagemesh.engines.ar.options import ArOptions
from stagemesh.engines.ar.tokens import Tokenizer
from stagemesh.spec.engine import EngineRequest, FaultKind, Finish
from stagemesh.spec.payload import Buffer, Payload
from tests.engines import tiny

pytestmark = pytest.mark.slow

PROMPT = list(range(10, 30))


@pytest.fixture
def engine(tiny_model: Callable[[str], Path]) -> ArEngine:
    """An engine that takes tokens."""
    return tiny.loaded(tiny_model("llama"), ArOptions(block_size=4))


@pytest.fixture
def speaker(tiny_model: Callable[[str], Path]) -> ArEngine:
    """An engine that takes text."""
    return tiny.loaded(tiny_model("llama"), owns_tokenizer=True)


def answer(engine: ArEngine, prompt: Payload | None = None, **params: object) -> Any:  # noqa: ANN401
    """Return the outputs of one request."""
    tiny.start(engine, "a", prompt or tiny.token_payload(PROMPT), **params)
    return tiny.finish(engine)["a"]


def test_a_prompt_is_wanted_on_when_its_tokens_are_computed(
    tiny_model: Callable[[str], Path],
) -> None:
    """So many in a step as there is room for; the last one waits for what follows it."""
    engine = tiny.loaded(tiny_model("llama"), ArOptions(block_size=4, max_num_batched_tokens=10))
    engine.add(EngineRequest(request_id="a", params={}))
    engine.append("a", tiny.token_payload(PROMPT), last=False)
    wanted = []
    for _ in range(2):
        wanted.append(engine.wants_input("a"))
        engine.step()
    assert [*wanted, engine.wants_input("a")] == [False, False, True]


def test_an_answer_ends_at_its_length(engine: ArEngine) -> None:
    """`max_tokens` ends it, and the units say what was counted."""
    outputs = answer(engine, max_tokens=7, ignore_eos=True)
    assert outputs[-1].finish is Finish.LENGTH
    assert len(tiny.tokens_of(outputs)) == 7
    assert sum(output.units["tokens"] for output in outputs) == 7
    assert sum(output.units.get("prompt_tokens", 0) for output in outputs) == len(PROMPT)


def test_an_answer_ends_with_the_context(engine: ArEngine) -> None:
    """More tokens than the context leaves are not given; the end is that of a length."""
    outputs = answer(engine, max_tokens=10_000, ignore_eos=True)
    assert outputs[-1].finish is Finish.LENGTH
    assert len(tiny.tokens_of(outputs)) == tiny.MAX_LEN - len(PROMPT)


def test_a_stop_token_ends_an_answer_unless_it_is_too_early(engine: ArEngine) -> None:
    """The stop token is the last one; `min_tokens` puts it off."""
    tokens = tiny.tokens_of(answer(engine, max_tokens=12, ignore_eos=True))
    stop = tokens[4]
    outputs = answer(engine, max_tokens=12, ignore_eos=True, stop_token_ids=[stop])
    assert outputs[-1].finish is Finish.STOP
    assert tiny.tokens_of(outputs) == tokens[: tokens.index(stop) + 1]
    later = answer(engine, max_tokens=12, ignore_eos=True, stop_token_ids=[stop], min_tokens=8)
    assert stop not in tiny.tokens_of(later)[:8]


def test_the_end_token_of_the_checkpoint_ends_an_answer(
    engine: ArEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `ignore_eos`, the checkpoint's end token stops it."""
    tokens = tiny.tokens_of(answer(engine, max_tokens=5, ignore_eos=True))
    assert engine._loaded is not None
    limits = engine._loaded.network.limits
    assert limits.end_tokens == {tiny.END_TOKEN}
    changed = type(limits)(
        max_model_len=limits.max_model_len,
        num_blocks=limits.num_blocks,
        vocab_size=limits.vocab_size,
        end_tokens=frozenset({tokens[0]}),
    )
    monkeypatch.setattr(engine._loaded.network, "limits", changed)
    outputs = answer(engine, max_tokens=5)
    assert (outputs[-1].finish, tiny.tokens_of(outputs)) == (Finish.STOP, tokens[:1])


def test_text_comes_in_pieces_with_all_tokens(speaker: ArEngine) -> None:
    """Every payload has new text, and their tokens are all tokens of the answer."""
    outputs = answer(speaker, tiny.text_payload("hello"), max_tokens=40, ignore_eos=True)
    payloads = [payload for output in outputs for payload in output.payloads]
    assert all(payload.meta["text"] for payload in payloads[:-1])
    assert len(payloads) > 1
    assert len(tiny.tokens_of(outputs)) == 40
    assert outputs[0].units["prompt_tokens"] == len("<user>hello<answer>")


def test_a_stop_string_ends_an_answer_before_itself(speaker: ArEngine) -> None:
    """The text ends where the string begins, even within what one token gave."""
    params: dict[str, object] = {
        "max_tokens": 60,
        "ignore_eos": True,
        "temperature": 1.0,
        "seed": 3,
    }
    text = tiny.text_of(answer(speaker, tiny.text_payload("hello"), **params))
    stop = text[10:13]
    outputs = answer(speaker, tiny.text_payload("hello"), stop=[stop], **params)
    assert outputs[-1].finish is Finish.STOP
    assert tiny.text_of(outputs) == text[: text.index(stop)]


def test_the_system_text_changes_the_prompt(speaker: ArEngine) -> None:
    """`system` in the metadata becomes a message of its own."""
    prompt = Payload(meta={"text": "hello", "system": "be brief"})
    outputs = answer(speaker, prompt, max_tokens=1)
    assert outputs[0].units["prompt_tokens"] == len("<system>be brief<user>hello<answer>")


def named(name: str) -> Payload:
    """Return a prompt whose buffer has that name."""
    return Payload(buffers=(replace(tiny.token_payload([1]).buffers[0], name=name),))


def wrong(dtype: str, shape: tuple[int, ...], size: int) -> Payload:
    """Return a prompt whose buffer is of another kind."""
    data = memoryview(bytes(size))
    return Payload(buffers=(Buffer(name="token_ids", dtype=dtype, shape=shape, data=data),))


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        (tiny.token_payload([]), {}, "the prompt is empty"),
        (Payload(), {}, "the prompt is empty"),
        (tiny.token_payload([1] * 300), {}, "the prompt has `300` tokens, allowed are `255`"),
        (tiny.token_payload([260]), {}, "`token_ids` must be from `0` to `259`, got `260`"),
        (tiny.token_payload([-1]), {}, "`token_ids` must be from `0` to `259`, got `-1`"),
        (wrong("int32", (2,), 8), {}, "`token_ids` must be `int64 [n]`, got `int32 [2]`"),
        (wrong("int64", (1, 1), 8), {}, "`token_ids` must be `int64 [n]`, got `int64 [1, 1]`"),
        (tiny.text_payload("hi"), {}, "the stage takes `token_ids`, got text"),
        (None, {"stop": ["x"]}, "`stop` needs a stage that owns the tokenizer"),
        (None, {"max_tokens": 0}, "`params.max_tokens` must be `>= 1`, got `0`"),
        (None, {"stop_token_ids": [260]}, "`stop_token_ids` must be from `0` to `259`, got `260`"),
        (None, {"stop_token_ids": [-1]}, "`params.stop_token_ids[0]` must be `>= 0`, got `-1`"),
        (
            None,
            {"temperature": 1e-40},
            "`temperature` must be `0` or at least `0.001`, got `1e-40`",
        ),
        (
            None,
            {"temperature": float("inf")},
            "`params.temperature` must be `0 to 100`, got `inf`",
        ),
        (
            None,
            {"min_tokens": 3, "max_tokens": 2},
            "`min_tokens` is `3`, which is above `max_tokens` `2`",
        ),
        (Payload(meta={"txt": "hi"}), {}, "`meta` holds `txt`, known here: `text`, `system`"),
        (Payload(meta={"text": 1}), {}, "`text` must be text, got `1`"),
        (named("pixels"), {}, "`buffers` holds `pixels`, known here: `token_ids`"),
    ],
)
def test_what_cannot_be_served_fails_the_request(
    engine: ArEngine, prompt: Payload | None, params: dict[str, object], message: str
) -> None:
    """A wrong prompt or parameter is the request's fault, with the value and what is allowed."""
    (output,) = answer(engine, prompt, **params)
    assert output.error is not None
    assert output.error.kind is FaultKind.INVALID_REQUEST
    assert output.error.message == message


def test_text_and_tokens_do_not_mix(speaker: ArEngine) -> None:
    """A prompt is one or the other, and an empty stop string is none."""
    both = Payload(meta={"text": "hi"}, buffers=tiny.token_payload([1]).buffers)
    (output,) = answer(speaker, both)
    assert output.error is not None
    assert output.error.message == "a prompt is either text or `token_ids`, got both"
    (output,) = answer(speaker, tiny.text_payload("hi"), stop=[""])
    assert output.error is not None
    assert output.error.message == "`stop` holds an empty string"


def test_a_step_that_breaks_fails_its_requests_and_frees_their_blocks(
    engine: ArEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the model raises, those in the step fail, and the next request is served."""
    assert engine._loaded is not None
    tiny.start(engine, "a", tiny.token_payload(PROMPT))

    def broken(*_: object) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(engine._loaded.network, "run", broken)
        (output,) = engine.step()
    assert output.error is not None
    assert (output.error.kind, output.error.message) == (FaultKind.INTERNAL, "MemoryError: no room")
    stats = engine.call("stats", {})
    assert stats["free_blocks"] == stats["blocks"]
    assert answer(engine, max_tokens=1)[-1].finish is Finish.LENGTH


@pytest.mark.parametrize("temperature", [0.001, 100.0])
def test_the_temperatures_that_are_allowed_can_be_drawn_at(
    engine: ArEngine, temperature: float
) -> None:
    """Neither end of the range breaks the draw."""
    outputs = answer(engine, max_tokens=3, ignore_eos=True, temperature=temperature, seed=1)
    assert len(tiny.tokens_of(outputs)) == 3


def test_a_row_that_allows_no_pick_fails_its_request_alone(engine: ArEngine) -> None:
    """Where every token is held off there is nothing to draw; the rest of the step is kept."""
    nothing = {"temperature": 1.0, "min_tokens": 1, "stop_token_ids": list(range(260))}
    tiny.start(engine, "bad", tiny.token_payload(PROMPT), **nothing)
    tiny.start(engine, "good", tiny.token_payload(PROMPT), max_tokens=1)
    outputs = {output.request_id: output for output in engine.step()}
    fault = outputs["bad"].error
    assert fault is not None
    assert fault.kind is FaultKind.INTERNAL
    assert fault.message.startswith("RuntimeError: ")
    assert outputs["good"].finish is Finish.LENGTH
    stats = engine.call("stats", {})
    assert (stats["requests"], stats["free_blocks"]) == (0, stats["blocks"])


def test_an_answer_that_cannot_be_told_fails_its_request_alone(
    speaker: ArEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer that breaks on one answer leaves the others."""
    decode = Tokenizer.decode

    def breaks_once(*_: object) -> str:
        monkeypatch.setattr(Tokenizer, "decode", decode)
        raise KeyError("no such token")

    for name in "ab":
        tiny.start(speaker, name, tiny.text_payload("hello"), max_tokens=1, ignore_eos=True)
    monkeypatch.setattr(Tokenizer, "decode", breaks_once)
    outputs = {output.request_id: output for output in speaker.step()}
    assert outputs["a"].error is not None
    assert outputs["a"].error.message == "KeyError: 'no such token'"
    assert outputs["b"].finish is Finish.LENGTH


def test_cancel_frees_all_blocks(engine: ArEngine) -> None:
    """Blocks come back from running, paused and waiting requests."""
    for name in "abc":
        tiny.start(engine, name, tiny.token_payload(PROMPT))
    engine.add(EngineRequest(request_id="d"))
    engine.append("d", tiny.token_payload(PROMPT), last=False)
    engine.step()
    engine.pause("b")
    assert engine.call("stats", {})["free_blocks"] != engine.call("stats", {})["blocks"]
    for name in "abcd":
        engine.cancel(name)
    stats = engine.call("stats", {})
    assert stats["free_blocks"] == stats["blocks"]
    assert stats["requests"] == 0
