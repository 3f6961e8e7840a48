"""What a running system costs while nobody asks it anything: CPU time of the whole tree.

python benchmarks/idle_cpu.py [SECONDS]
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace

from _streams import cpu_s

from stagemesh.runtime.omni import Omni
from stagemesh.testing.fake_plan import fake_plan, three_stages


def main() -> None:
    """Print what was used, also as a share of one core."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    stages = [replace(stage, replicas=2) for stage in three_stages()]
    with Omni(fake_plan(stages)) as omni:
        omni.generate(["warm up"] * 8)
        pids = [os.getpid(), *omni.pids.values()]
        time.sleep(1.0)  # what the warm-up left behind settles
        began = cpu_s(pids)
        time.sleep(seconds)
        used = cpu_s(pids) - began
    found = {
        "benchmark": "idle_cpu",
        "processes": len(pids),
        "seconds": seconds,
        "cpu_ms": round(used * 1e3, 3),
        "percent_of_a_core": round(100 * used / seconds, 4),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
