"""The process of an actor of `FakeRay`: a job comes in, and what became of it goes out.

Its argument is the address of its node.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from stagemesh.runtime.launchers.ray_actor import keep
from stagemesh.runtime.launchers.ray_jobs import decode


def main() -> int:
    """Do the work."""
    found = asyncio.run(keep(decode(sys.stdin.buffer.read()), sys.argv[1]))
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
