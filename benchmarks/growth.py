"""How the cost of a chunk grows with stages, replicas, streams and the size of the payload.

One of them is varied at a time, the others stay at three stages, one replica, 16 streams and
4 KiB. `frontend` is the CPU time of the caller's process for each chunk that reaches the user,
`tree` that of all processes; `first_output` is the median time to the first chunk of a stream,
which on a machine with fewer cores than processes is mostly waiting for a core.

    python benchmarks/growth.py [--plot growth.svg]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from _streams import Load, cost_of

BASE: Final = Load(stages=3, replicas=1, streams=16, chunk_bytes=4096, chunks=60)
CHUNKS: Final = 1000
"""How many chunks a point is made of, unless they are large."""
BYTES: Final = 256 * 1024 * 1024
"""How many bytes a point is made of at most, about."""
KIB: Final = 1024
SWEEPS: Final[Mapping[str, Sequence[int]]] = {
    "stages": (1, 2, 3, 5, 8),
    "replicas": (1, 2, 4, 8),
    "streams": (1, 4, 16, 64, 256),
    "chunk_bytes": (256, 4 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB),
}
SHOWN: Final = {
    "frontend_us_per_chunk": "frontend, CPU us per chunk",
    "tree_us_per_chunk": "all processes, CPU us per chunk",
    "first_output_ms": "first output, ms",
}


def measure() -> dict[str, list[dict[str, float]]]:
    """Run every point."""
    found: dict[str, list[dict[str, float]]] = {}
    for name, values in SWEEPS.items():
        found[name] = []
        for value in values:
            load = replace(BASE, **{name: value})
            total = min(CHUNKS, BYTES // load.chunk_bytes)
            load = replace(load, chunks=max(4, total // load.streams))
            cost = asyncio.run(cost_of(load))
            found[name].append({name: value, **cost.as_json()})
    return found


def plot(found: Mapping[str, Sequence[Mapping[str, float]]], path: str) -> None:
    """Draw a column for each sweep and a row for each cost; needs the extra `bench`."""
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, rows = pyplot.subplots(
        len(SHOWN), len(found), figsize=(4 * len(found), 9), sharex="col"
    )
    for row, (cost, title) in zip(rows, SHOWN.items(), strict=True):
        for axes, (name, points) in zip(row, found.items(), strict=True):
            values = [point[name] for point in points]
            axes.plot(values, [point[cost] for point in points], marker="o")
            axes.set_xscale("log", base=2)
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.set_ylim(bottom=0)
            axes.grid(visible=True, alpha=0.3)
        row[0].set_ylabel(title)
    for axes, name in zip(rows[-1], found, strict=True):
        axes.set_xlabel(name)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Print all points as JSON, and draw them where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE", help="draw what was found, as SVG, PNG or PDF")
    given = parser.parse_args()
    found = measure()
    if given.plot is not None:
        plot(found, given.plot)
    print(json.dumps({"benchmark": "growth", **found}, indent=2))


if __name__ == "__main__":
    main()
