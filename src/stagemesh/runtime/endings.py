"""How processes end: asked, then told, then made to.

When any of this returns or is cancelled, none of them is left running.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Collection
from typing import Final

from stagemesh.runtime.messages import Stop
from stagemesh.runtime.process import Process

_STOP_S: Final = 10.0
_TERMINATE_S: Final = 5.0
_KILL_S: Final = 10.0
_log: Final = logging.getLogger(__name__)


async def end(processes: Collection[Process]) -> None:
    """Ask all of them to stop, in order; who does not gets SIGTERM, and then SIGKILL."""
    try:
        for process in processes:
            if process.alive:
                process.say(Stop())
        if await _reaped(processes, _STOP_S):
            return
        for process in processes:
            process.kill(signal.SIGTERM)
        await _reaped(processes, _TERMINATE_S)
    finally:
        kill(processes)
    await bury(processes)


def kill(processes: Collection[Process]) -> None:
    """End them at once; may be called from any thread."""
    for process in processes:
        process.kill()


async def bury(processes: Collection[Process]) -> None:
    """Kill what is left; a process that even so does not end is told of in the log."""
    kill(processes)
    if not await _reaped(processes, _KILL_S):
        for process in processes:
            if process.alive:
                _log.error("%s, process `%d`, does not end", process.name, process.pid)


async def _reaped(processes: Collection[Process], within_s: float) -> bool:
    waits = [process.exited for process in processes if process.alive]
    if not waits:
        return True
    _, left = await asyncio.wait(waits, timeout=within_s)
    return not left
