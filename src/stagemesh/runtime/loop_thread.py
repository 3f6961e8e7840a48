"""An asyncio loop on a thread of its own, for synchronous callers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

from stagemesh.errors import ClosedError

Result = TypeVar("Result")
_STOP_S: Final = 10.0
"""How long what still runs may take to be cancelled."""
_log: Final = logging.getLogger(__name__)


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        """Start the thread; it does not keep the interpreter alive."""
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._asked_to_stop = asyncio.Event()
        self._stopping = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stagemesh-omni", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread, which must never wait for itself."""
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, Result], *, timeout_s: float | None = None) -> Result:
        """Run `work` and wait for it; when the wait is interrupted the work is cancelled.

        Without `timeout_s` the wait lasts as long as the work, which has a deadline of its own.
        Raises `ClosedError` when the thread is stopped before the work is done.
        """
        with self._lock:  # what is asked for before the stop is cancelled by it, never forgotten
            if self._stopping or self.is_current:
                work.close()
                if self.is_current:
                    raise RuntimeError(
                        "a function that the runtime calls, such as `on_progress`, cannot wait for"
                        " the runtime"
                    )
                raise ClosedError("the system is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise ClosedError("the system was closed") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs and end the thread; calling it again does nothing."""
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._loop.call_soon_threadsafe(self._asked_to_stop.set)
        if not self.is_current:
            self._thread.join(_STOP_S)
            if self._thread.is_alive():
                _log.error("the thread of the runtime does not end; is it held up by a callback?")

    def _run(self) -> None:
        with self._runner:
            self._runner.run(_until(self._asked_to_stop))


async def _until(event: asyncio.Event) -> None:
    await event.wait()
