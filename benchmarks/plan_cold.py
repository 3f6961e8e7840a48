"""CPU time of `plan` and `--help` from a cold start, beside a bare interpreter. Prints JSON.

python benchmarks/plan_cold.py [MODEL] [--runs N]
"""

from __future__ import annotations

import argparse
import json
import sys

from _measure import STAGEMESH, best_of


def main() -> None:
    """Measure each command several times and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="voice_chat")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    python = sys.executable
    commands = {
        "bare_python": [python, "-c", "pass"],
        "help": [*STAGEMESH, "--help"],
        "plan": [*STAGEMESH, "plan", options.model],
        "import_torch": [python, "-c", "import torch"],
    }
    best = {name: best_of(options.runs, command).cpu_ms for name, command in commands.items()}
    print(
        json.dumps(
            {
                "benchmark": "plan_cold",
                "model": options.model,
                "cpu_ms": {name: round(value, 1) for name, value in best.items()},
                "plan_over_import_torch": round(best["plan"] / best["import_torch"], 4),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
