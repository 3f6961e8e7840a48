"""CPU time of `plan` and `--help` from a cold start, beside a bare interpreter. Prints JSON.

python benchmarks/plan_cold.py [MODEL] [--runs N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys


def child_cpu_ms(command: list[str]) -> float:
    """CPU milliseconds (user + system) that `command` took; raises when it fails."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        message = f"`{' '.join(command)}` exited with {process.returncode}"
        raise SystemExit(message)
    return 1000 * (usage.ru_utime + usage.ru_stime)


def main() -> None:
    """Measure each command several times and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="voice_chat")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    python = sys.executable
    stagemesh = [python, "-m", "stagemesh"]
    commands = {
        "bare_python": [python, "-c", "pass"],
        "help": [*stagemesh, "--help"],
        "plan": [*stagemesh, "plan", options.model],
        "import_torch": [python, "-c", "import torch"],
    }
    best = {
        name: min(child_cpu_ms(command) for _ in range(options.runs))
        for name, command in commands.items()
    }
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
