"""What plans of tests refer to; resolved in stage processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from stagemesh.spec.payload import Payload


@dataclass(slots=True)
class UpperBridge:
    """Hands over capital letters, all but the last output of each request at once."""

    kept: list[Payload] = field(default_factory=list)

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Keep every output until the next one comes."""
        text = str(payload.meta.get("text", "")).upper()
        ready, self.kept = self.kept, [Payload(meta={"text": text})] if text else []
        return ready + (self.kept if last else [])


@dataclass(slots=True)
class FailingBridge:
    """Cannot take what it is given."""

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Raise."""
        raise ValueError(f"no bridge for {payload.meta}, {last}")


class GarbageBridge(UpperBridge):
    """Writes nonsense to every socket of its process when it is told to and asked for it."""

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Hand over capital letters, or spoil everything."""
        if "garbage" in str(payload.meta.get("text")) and "TEST_GARBAGE" in os.environ:
            for fd in Path("/proc/self/fd").iterdir():
                with contextlib.suppress(OSError):
                    if fd.is_socket():
                        os.write(int(fd.name), b"\xff" * 64)
        return super().push(payload, last=last)


def spawning_bridge() -> UpperBridge:
    """Start a process that lives on by itself, and write down which."""
    child = subprocess.Popen(["/bin/sleep", "600"])
    Path(os.environ["TEST_RECORD"]).write_text(str(child.pid), encoding="ascii")
    return UpperBridge()
