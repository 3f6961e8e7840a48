"""A headless start in a process of its own, from a saved plan; prints how it ended."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from stagemesh.errors import StagemeshError
from stagemesh.plan.save import from_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.worker import run_headless


def main(path: str) -> int:
    """Run it."""
    logging.basicConfig(level=logging.INFO)
    plan = from_json(Path(path).read_text(encoding="utf-8"))
    assert isinstance(plan, Plan)
    try:
        asyncio.run(run_headless(plan))
    except StagemeshError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
