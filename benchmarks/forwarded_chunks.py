"""What the frontend pays for streams of audio: CPU of the caller's process for every chunk.

Streams run at the pace of speech, 12.5 chunks a second each: a step of the first stage takes 80 ms
and gives one chunk of each of its streams, the other stages pass them on. Its replicas step each in
its own time, so chunks come in several bursts. `frontend_percent_of_a_core` is at that pace;
`tree_percent_of_a_core` counts every process. `unpaced` has no pauses, so that more chunks are read
at a time; it tells how many chunks a core can forward at most. `bare_reader` is what a process pays
that reads the same frames from a socket and decodes them, and does nothing else.

    python benchmarks/forwarded_chunks.py [CHUNKS_PER_STREAM]
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from _bare_reader import bare_reader_us
from _streams import Cost, Load, cost_of

STREAMS: Final = 64
STEP_S: Final = 0.08
CHUNK_BYTES: Final = 3840
"""80 ms of audio at 24 kHz, 16 bits a sample."""
TARGETS: Final = {"frontend_us_per_chunk": 50, "frontend_percent_of_a_core": 15}


def load_of(chunks: int, step_s: float) -> Load:
    """The streams, at a pace or, with `0`, without one."""
    return Load(
        stages=3,
        replicas=4,
        streams=STREAMS,
        chunk_bytes=CHUNK_BYTES,
        chunks=chunks,
        step_s=step_s,
    )


def beside_reader(cost: Cost, load: Load) -> dict[str, float]:
    """What a load cost, and what the bare reader pays for it."""
    reader_us = bare_reader_us(load)
    return {
        **cost.as_json(),
        "bare_reader_us_per_chunk": round(reader_us, 1),
        "frontend_over_bare_reader": round(cost.frontend_us / reader_us, 1),
    }


def measure(chunks: int) -> dict[str, object]:
    """Run the streams at their pace, and without one."""
    at_pace, without = load_of(chunks, STEP_S), load_of(chunks, 0.0)
    paced, unpaced = asyncio.run(cost_of(at_pace)), asyncio.run(cost_of(without))
    per_s = STREAMS / STEP_S
    return {
        "benchmark": "forwarded_chunks",
        "streams": STREAMS,
        "chunks_per_s_of_each": 1 / STEP_S,
        **beside_reader(paced, at_pace),
        "frontend_percent_of_a_core": round(100 * per_s * paced.frontend_us / 1e6, 2),
        "tree_percent_of_a_core": round(100 * per_s * paced.tree_us / 1e6, 2),
        "unpaced": beside_reader(unpaced, without),
        "targets": TARGETS,
    }


if __name__ == "__main__":
    chunks_of_each = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(json.dumps(measure(chunks_of_each), indent=2))
