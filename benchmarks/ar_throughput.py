"""Tokens per second of the `ar` engine: 8 requests at once or one by one, and of `generate`.

All three use the same weights, type, prompts and answer lengths, in one process with one torch
thread; rounds of the three alternate, and ratios are of the medians. Rates are told by CPU seconds,
which on one thread are the seconds of an idle core and hold on a busy machine too, and by wall
seconds. Prints JSON.

    python benchmarks/ar_throughput.py [FOLDER] [--tokens 64] [--rounds 3] [--dtype auto]

FOLDER is a checkpoint of a decoder model; without it, the thinker of the assembled `voice_chat`.
"""

from __future__ import annotations

import argparse
import array
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from stagemesh.config.environment import cache_folder
from stagemesh.engines.ar.engine import ArEngine
from stagemesh.engines.ar.network import compute_dtype
from stagemesh.engines.ar.options import ArOptions
from stagemesh.spec.engine import EngineContext, EngineRequest
from stagemesh.spec.payload import Buffer, Payload
from stagemesh.spec.pipeline import NoOptions

NUM_REQUESTS = 8
PROMPT_LENGTHS = (24, 40, 31, 56, 28, 35, 48, 44)
THINKER = cache_folder() / "voice_chat" / "thinker"


def payload(tokens: Sequence[int]) -> Payload:
    """Return a prompt of token ids."""
    data = memoryview(array.array("q", tokens)).cast("B")
    shape = (len(tokens),)
    return Payload(buffers=(Buffer(name="token_ids", dtype="int64", shape=shape, data=data),))


def make_engine(folder: Path, dtype: str) -> ArEngine:
    """Return a loaded engine over `folder`."""
    options = ArOptions(dtype=dtype, max_num_seqs=NUM_REQUESTS)  # type: ignore[arg-type]
    engine = ArEngine(
        EngineContext(
            stage="thinker",
            checkpoint=folder,
            model_subdir=".",
            loader=None,
            device="cpu",
            rank=0,
            world_size=1,
            async_chunk=False,
            owns_tokenizer=False,
            args=options,
            model_args=NoOptions(),
            model_params=NoOptions,
        )
    )
    engine.load()
    return engine


def run_engine(engine: ArEngine, prompts: Sequence[Sequence[int]], num_tokens: int) -> None:
    """Answer all prompts at once."""
    params = {"max_tokens": num_tokens, "ignore_eos": True}
    for index, prompt in enumerate(prompts):
        engine.add(EngineRequest(request_id=str(index), params=params))
        engine.append(str(index), payload(prompt), last=True)
    told = 0.0
    while engine.has_work():
        told += sum(output.units["tokens"] for output in engine.step())
    assert told == len(prompts) * num_tokens


def run_generate(model: torch.nn.Module, prompts: Sequence[Sequence[int]], num_tokens: int) -> None:
    """Answer all prompts with `generate`, one call each."""
    for prompt in prompts:
        ids = torch.tensor([prompt])
        answer = model.generate(  # type: ignore[operator]
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
        )
        assert answer.shape[1] == len(prompt) + num_tokens


def rate(work: Callable[[], None], num_tokens: int) -> dict[str, float]:
    """Return the tokens of `work` per second, by either clock."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    tokens = NUM_REQUESTS * num_tokens
    return {
        "cpu": tokens / (time.process_time() - cpu),
        "wall": tokens / (time.perf_counter() - wall),
    }


def report(rates: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    """Return medians and ratios, by either clock."""
    found: dict[str, object] = {}
    for clock in ("cpu", "wall"):
        median = {
            name: statistics.median(one[clock] for one in rounds) for name, rounds in rates.items()
        }
        found[f"tokens_per_{clock}_s"] = median
        for other in ("sequential", "generate"):
            found[f"concurrent_over_{other}_{clock}"] = median["concurrent"] / median[other]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=THINKER)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    engine = make_engine(asked.folder, asked.dtype)
    stored = AutoConfig.from_pretrained(asked.folder, local_files_only=True).dtype
    dtype = compute_dtype(stored, asked.dtype, torch.device("cpu"))
    model = AutoModelForCausalLM.from_pretrained(asked.folder, dtype=dtype, local_files_only=True)
    draw = torch.Generator().manual_seed(0)
    prompts: list[list[int]] = [
        torch.randint(10, model.config.vocab_size - 10, (length,), generator=draw).tolist()
        for length in PROMPT_LENGTHS
    ]

    def one_by_one() -> None:
        for prompt in prompts:
            run_engine(engine, [prompt], asked.tokens)

    ways: dict[str, Callable[[], None]] = {
        "concurrent": lambda: run_engine(engine, prompts, asked.tokens),
        "sequential": one_by_one,
        "generate": lambda: run_generate(model, prompts, asked.tokens),
    }
    run_engine(engine, prompts, 4)
    run_generate(model, prompts[:1], 4)
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(asked.rounds):
        for name, work in ways.items():
            rates[name].append(rate(work, asked.tokens))
    told = {
        "model": str(asked.folder),
        "dtype": str(dtype).removeprefix("torch."),
        "requests": NUM_REQUESTS,
        "tokens_each": asked.tokens,
    }
    print(json.dumps(told | report(rates) | {"rounds": rates}, indent=2))


if __name__ == "__main__":
    main()
