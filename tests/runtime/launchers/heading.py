"""A head in a process of its own, from a saved plan; says `up` when it is, and stays."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from stagemesh.plan.save import from_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.omni import AsyncOmni


async def main(plan: Plan) -> None:
    """Run it."""
    async with AsyncOmni(plan):
        sys.stdout.write("up\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    read = from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    assert isinstance(read, Plan)
    asyncio.run(main(read))
