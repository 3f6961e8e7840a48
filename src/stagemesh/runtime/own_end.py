"""How a process of a replica ends itself when there is nobody left to work for, or nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import NoReturn


def end_group() -> NoReturn:
    """End this process and what it has started, at once."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def crash(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> NoReturn:
    """A fault of our own in an I/O thread: who no longer hears is worse than who has died."""
    loop.default_exception_handler(context)
    os._exit(1)
