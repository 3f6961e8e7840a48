"""A system that runs until its process is told to end.

The first signal lets running requests end, for as long as the plan says, and stops all stages. A
second one ends every stage at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection
from typing import Final

from stagemesh.runtime.omni import AsyncOmni

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def run_until_signal(
    system: AsyncOmni, signals: Collection[signal.Signals] = SIGNALS
) -> None:
    """Wait for a signal, then drain and close `system`; to be called on the main thread."""
    loop = asyncio.get_running_loop()
    first, second = asyncio.Event(), asyncio.Event()

    def told() -> None:
        if first.is_set():
            system.kill()
            second.set()
        first.set()

    for each in signals:
        loop.add_signal_handler(each, told)
    try:
        await first.wait()
        ends = {asyncio.ensure_future(system.drain()), asyncio.ensure_future(second.wait())}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            await system.close()
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
