"""CPU time of `plan --fit` for 8 and 64 devices, next to a plain plan. Prints JSON.

python benchmarks/plan_fit.py [MODEL] [--runs N]
"""

from __future__ import annotations

import argparse
import json
from typing import Final

from _measure import FIXTURES, STAGEMESH, best_of

BUDGET_MS: Final = 2000
"""What 64 devices may take."""


def main() -> None:
    """Measure each command several times and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(FIXTURES / "diffusers" / "qwen_image"))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    plan = [*STAGEMESH, "plan", options.model]
    commands = {
        "plan": [*plan, "--devices", "8xH200"],
        "fit_8": [*plan, "--fit", "8xH200"],
        "fit_64": [*plan, "--fit", "64xH200"],
    }
    best = {name: best_of(options.runs, command).cpu_ms for name, command in commands.items()}
    print(
        json.dumps(
            {
                "benchmark": "plan_fit",
                "model": options.model,
                "cpu_ms": {name: round(value, 1) for name, value in best.items()},
                "fit_64_budget_ms": BUDGET_MS,
                "fit_64_within_budget": best["fit_64"] <= BUDGET_MS,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
