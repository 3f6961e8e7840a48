"""The `ar` engine gives the tokens that `transformers` gives, whatever the batch looks like."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from stagemesh.engines.ar.options import ArOptions
from stagemesh.spec.engine import EngineOutput
from tests.engines import tiny

pytestmark = pytest.mark.slow

KINDS = sorted(tiny.CONFIGS)


def prompts(lengths: tuple[int, ...] = (1, 40, 7, 23, 64, 2, 12, 33)) -> list[list[int]]:
    """Return fixed prompts of different lengths."""
    draw = random.Random(7)  # noqa: S311  # no secret
    return [[draw.randrange(250) for _ in range(length)] for length in lengths]


def expected(folder: Path, prompt: list[int], **params: Any) -> list[int]:  # noqa: ANN401
    """Return what `generate` answers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([prompt])
    answer = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **params)
    tokens: list[int] = answer[0, len(prompt) :].tolist()
    return tokens


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_gives_each_request_the_greedy_tokens_of_generate(
    kind: str, tiny_model: Callable[[str], Path]
) -> None:
    """Eight ragged prompts that arrive while others run, in chunks, equal `generate` one by one."""
    folder = tiny_model(kind)
    options = ArOptions(max_num_batched_tokens=24, block_size=4)
    engine = tiny.loaded(folder, options)
    outputs: dict[str, list[EngineOutput]] = {}
    for index, prompt in enumerate(prompts()):
        tiny.start(engine, str(index), tiny.token_payload(prompt), max_tokens=30)
        for output in [*engine.step(), *engine.step()]:
            outputs.setdefault(output.request_id, []).append(output)
    for name, rest in tiny.finish(engine).items():
        outputs.setdefault(name, []).extend(rest)
    for index, prompt in enumerate(prompts()):
        answer = tiny.tokens_of(outputs[str(index)])
        assert answer == expected(folder, prompt, max_new_tokens=30)
        assert len(set(answer)) > 2


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_preempted_requests_give_the_same_tokens(
    kind: str, tiny_model: Callable[[str], Path]
) -> None:
    """With a cache too small for all, requests lose their blocks and still equal `generate`."""
    folder = tiny_model(kind)
    token_bytes = 3 * 2 * 2 * 8 * 4
    options = ArOptions(
        max_model_len=96,
        block_size=4,
        kv_cache_memory_bytes=token_bytes * 100,
        max_num_batched_tokens=32,
    )
    engine = tiny.loaded(folder, options)
    for index, prompt in enumerate(prompts()):
        tiny.start(engine, str(index), tiny.token_payload(prompt), max_tokens=25)
    outputs = tiny.finish(engine)
    assert engine.call("stats", {})["preemptions"] != 0
    assert engine.call("stats", {})["free_blocks"] == 25
    for index, prompt in enumerate(prompts()):
        assert tiny.tokens_of(outputs[str(index)]) == expected(folder, prompt, max_new_tokens=25)


def test_the_repetition_penalty_is_that_of_generate(tiny_model: Callable[[str], Path]) -> None:
    """Tokens seen in prompt and answer are held down as `generate` does it."""
    folder = tiny_model("llama")
    engine = tiny.loaded(folder)
    prompt = prompts()[3]
    params = {"max_tokens": 30, "repetition_penalty": 1.7}
    tiny.start(engine, "a", tiny.token_payload(prompt), **params)
    wanted = expected(folder, prompt, max_new_tokens=30, repetition_penalty=1.7)
    assert tiny.tokens_of(tiny.finish(engine)["a"]) == wanted
    assert wanted != expected(folder, prompt, max_new_tokens=30)
