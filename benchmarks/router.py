"""CPU time of one routing decision by policy and number of replicas. Prints JSON.

python benchmarks/router.py [--decisions N]

A decision is a pick with its binding counted; releases keep about ten requests in flight on every
replica, and are timed apart. Each number is the best of five runs: other work only ever adds.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Final

from stagemesh.runtime.core.router import Router, RouterOptions, Unroutable
from stagemesh.spec.patterns import Policy

SIZES: Final = (10, 100, 1_000, 10_000)
LIMIT_US: Final = 5.0
_IN_FLIGHT: Final = 10
_RUNS: Final = 5


def measure(policy: Policy, size: int, decisions: int) -> tuple[float, float]:
    """Microseconds of CPU of a pick and of a release, under steady load."""
    router = Router(RouterOptions(policy=policy, seed=1), range(size))
    order = random.Random(2)  # noqa: S311  which request ends next
    bound = [taken(router, f"warm-{number}") for number in range(_IN_FLIGHT * size)]
    picks, releases = [], []
    for run in range(_RUNS):
        keys = [f"{run}-{number}" for number in range(decisions)]
        order.shuffle(bound)
        ending, bound = bound[:decisions], bound[decisions:]
        began = time.thread_time()
        for replica in ending:
            router.release(replica)
        middle = time.thread_time()
        chosen = [router.pick(key) for key in keys]
        ended = time.thread_time()
        bound += [replica for replica in chosen if not isinstance(replica, Unroutable)]
        releases.append((middle - began) / max(len(ending), 1))
        picks.append((ended - middle) / decisions)
    return 1e6 * min(picks), 1e6 * min(releases)


def taken(router: Router, key: str) -> int:
    """A pick that must succeed."""
    replica = router.pick(key)
    assert not isinstance(replica, Unroutable), replica
    return replica


def main() -> None:
    """Measure every policy at every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=5_000)
    options = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for policy in Policy:
        for size in SIZES:
            pick, release = measure(policy, size, options.decisions)
            sizes = found.setdefault(policy.value, {})
            sizes[str(size)] = {"pick_us": round(pick, 2), "release_us": round(release, 2)}
    worst = max(times["pick_us"] for sizes in found.values() for times in sizes.values())
    result = {
        "benchmark": "router",
        "decision": found,
        "worst_pick_us": worst,
        "limit_us": LIMIT_US,
        "within_limit": worst <= LIMIT_US,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
