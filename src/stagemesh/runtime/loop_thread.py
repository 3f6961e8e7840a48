"""An asyncio loop on a thread of its own, for synchronous callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        """Start the thread; it does not keep the interpreter alive."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=asyncio.run, args=(_serve(started),), name="stagemesh-omni", daemon=True
        )
        self._thread.start()
        self._loop, self._stop = started.result()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread, which must never wait for itself."""
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` and wait for it; when the wait is interrupted the work is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs and end the thread; calling it again does nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        if not self.is_current:
            self._thread.join()


async def _serve(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    stop = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()
