"""What streams that are left in the middle leave behind: memory and descriptors of the whole tree.

python benchmarks/aborted_streams.py [STREAMS]

A first fifth warms up: arenas are made, allocators find their size. Then half of the streams are
left before their first output, half after it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Final

from stagemesh.runtime.omni import AsyncOmni
from stagemesh.testing.fake_plan import fake_plan, three_stages

AT_A_TIME: Final = 16
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
SAYS_MUCH: Final = {"thinker": {"num_outputs": 1000}}


def resident(pid: int) -> int:
    """Bytes that a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def descriptors(pid: int) -> int:
    """Open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def leave(omni: AsyncOmni, after: int) -> None:
    """Ask, hear so many outputs, and go."""
    async with aclosing(omni.generate("hi", sampling_params=SAYS_MUCH)) as outputs:
        for _ in range(after):
            await anext(outputs)


async def leave_many(omni: AsyncOmni, streams: int) -> None:
    """Leave so many streams, some at a time, and wait until nobody holds any of them."""
    for begin in range(0, streams, AT_A_TIME):
        count = min(AT_A_TIME, streams - begin)
        await asyncio.gather(*(leave(omni, number % 2) for number in range(count)))
    await omni.run("hi")  # what the stages say of the others comes before what they say of this one


async def measure(streams: int) -> dict[str, object]:
    """Run a system, and look at it before and after."""
    async with AsyncOmni(fake_plan(three_stages())) as omni:
        pids = {"frontend": os.getpid()}
        pids |= {f"stage {where.stage}": pid for where, pid in omni.pids.items()}
        await leave_many(omni, streams // 5)
        before = {name: (resident(pid), descriptors(pid)) for name, pid in pids.items()}
        began = time.perf_counter()
        await leave_many(omni, streams - streams // 5)
        seconds = time.perf_counter() - began
        after = {name: (resident(pid), descriptors(pid)) for name, pid in pids.items()}
    grown = {name: after[name][0] - before[name][0] for name in pids}
    return {
        "benchmark": "aborted_streams",
        "streams": streams,
        "seconds": round(seconds, 3),
        "grown_bytes": grown,
        "grown_bytes_per_stream": round(sum(grown.values()) / streams, 1),
        "grown_descriptors": {name: after[name][1] - before[name][1] for name in pids},
        "published": {"system": "vllm-omni", "grown_bytes_per_stream": [45_000, 67_000]},
    }


if __name__ == "__main__":
    num_streams = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(json.dumps(asyncio.run(measure(num_streams)), indent=2))
