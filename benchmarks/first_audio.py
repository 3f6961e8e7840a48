"""Time to first audio with chunked hand-over against whole payloads, same request. Prints JSON.

python benchmarks/first_audio.py [--runs N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time

from stagemesh import AsyncOmni

QUESTION = "Explain in three sentences why the sky is blue."


async def measure(*, async_chunk: bool, runs: int) -> dict[str, list[float]]:
    """Seconds to the first audio and to the end of the answer, once per run, after one warm-up."""
    first: list[float] = []
    total: list[float] = []
    async with AsyncOmni("voice_chat", async_chunk=async_chunk) as omni:
        for run in range(runs + 1):
            begin = time.perf_counter()
            heard: float | None = None
            async for output in omni.generate(QUESTION):
                if output.audio is not None and heard is None:
                    heard = time.perf_counter() - begin
            if heard is None:
                message = "the answer had no audio"
                raise SystemExit(message)
            if run:
                first.append(heard)
                total.append(time.perf_counter() - begin)
    return {"first_audio_s": first, "total_s": total}


async def compare(runs: int) -> None:
    """Measure both ways one after the other and print the ratio of the medians."""
    chunked = await measure(async_chunk=True, runs=runs)
    whole = await measure(async_chunk=False, runs=runs)
    on = statistics.median(chunked["first_audio_s"])
    off = statistics.median(whole["first_audio_s"])
    report = {
        "benchmark": "first_audio",
        "question": QUESTION,
        "async_chunk_on": chunked,
        "async_chunk_off": whole,
        "first_audio_on_over_off": round(on / off, 4),
        "target": 0.40,
    }
    print(json.dumps(report, indent=2))


def main() -> None:
    """Read the number of runs and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    asyncio.run(compare(parser.parse_args().runs))


if __name__ == "__main__":
    main()
