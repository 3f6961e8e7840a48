"""The process of an actor of `FakeRay`: a job comes in, and what became of it goes out."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from stagemesh.runtime.launchers.ray_actor import Job, keep


def main() -> int:
    """Do the work."""
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    found = asyncio.run(keep(job, "127.0.0.3"))
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
