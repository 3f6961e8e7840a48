"""`python -m stagemesh.testing.simulator`: replay one seed, or look for one that breaks a rule."""

from __future__ import annotations

import argparse
import sys
import time

from stagemesh.testing.simulator.many import Summary, play
from stagemesh.testing.simulator.shared import play_shared
from stagemesh.testing.simulator.world import simulate


def main(given: list[str] | None = None) -> int:
    """Return 1 when a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m stagemesh.testing.simulator")
    parser.add_argument("seed", nargs="?", type=int, help="print the history of this seed")
    parser.add_argument("--count", type=int, default=1_000, help="play so many histories")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1, help="share them out")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    options = parser.parse_args(given)
    if options.seed is not None:
        return _replay(options.seed)
    began = time.perf_counter()
    if options.processes > 1:
        tell = None if options.json else _say
        summary = play_shared(options.start, options.count, options.processes, tell)
    else:
        summary = play(range(options.start, options.start + options.count))
    _say(summary.to_json() if options.json else _told(summary, time.perf_counter() - began))
    return 1 if summary.broken and not options.json else 0


def _replay(seed: int) -> int:
    outcome = simulate(seed, keep=True)
    told = f"seed {seed}: {outcome.events} events, {outcome.violation or 'every rule held'}"
    _say("\n".join([*outcome.history, told]))
    return 0 if outcome.violation is None else 1


def _told(summary: Summary, seconds: float) -> str:
    lines = [f"seed {seed}: {told}" for seed, told in summary.broken.items()]
    total = f"{summary.histories} histories, {summary.events} events in {seconds:.1f} s: "
    total += f"{summary.finished} requests finished, {summary.failed} failed, "
    return "\n".join([*lines, f"{total}{summary.refused} were refused"])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()  # somebody may be waiting for what is said in between


if __name__ == "__main__":
    sys.exit(main())
