"""Resolving a configuration: warm, cold, and 1,000 deploy files. Prints JSON.

python benchmarks/plan_resolve.py [MODEL] [--runs N]

The published cost of the same resolve in another system is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Final

from _measure import FIXTURES, PUBLISHED, STAGEMESH, best_of, run

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.build import build
from stagemesh.plan.prepare import prepare
from stagemesh.spec.registry import COMMANDS

BUDGETS: Final = {"resolve_warm_ms": 10, "cold_plan_rss_mb": 80, "validate_1000_s": 10}
FILES: Final = 1000
VALIDATE: Final = "validate"


def warm_ms(model: str, runs: int) -> float:
    """Best time of building a plan from configuration that is loaded."""
    catalog = Catalog.installed()
    host = Host(kind="cpu", count=None, memory_bytes=64 * 2**30)
    prepared = prepare(PlanInputs(model=model, devices="8xH200"), host, catalog)
    if prepared.request is None:
        raise SystemExit("; ".join(map(str, prepared.diagnostics)))
    times = []
    for _ in range(10 * runs):
        start = time.perf_counter()
        build(prepared.request, catalog)
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def validate_s() -> float | None:
    """CPU seconds of checking 1,000 deploy files; `None` where there is no such command."""
    if VALIDATE not in COMMANDS.modules():
        return None
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for number in range(FILES):
            file = Path(folder, f"{number}.yaml")
            stage = f"  - {{stage_id: 0, max_num_seqs: {number + 1}, devices: '{number % 8}'}}"
            file.write_text(f"stages:\n{stage}\n", encoding="utf-8")
            names.append(str(file))
        return run([*STAGEMESH, VALIDATE, *names]).cpu_ms / 1000


def main() -> None:
    """Measure and print, the budgets and the published numbers beside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(FIXTURES / "qwen2_5_omni"))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    cold = best_of(options.runs, [*STAGEMESH, "plan", options.model, "--devices", "8xH200"])
    checked = validate_s()
    print(
        json.dumps(
            {
                "benchmark": "plan_resolve",
                "model": options.model,
                "resolve_warm_ms": round(warm_ms(options.model, options.runs), 3),
                "cold_plan_cpu_ms": round(cold.cpu_ms, 1),
                "cold_plan_rss_mb": round(cold.rss_mb, 1),
                "validate_1000_s": None if checked is None else round(checked, 2),
                "budgets": BUDGETS,
                "published": PUBLISHED,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
