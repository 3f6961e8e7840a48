"""How many files a process of ours may have open: every connection and every edge takes some.

The soft limit is often 1024, for the sake of programs that wait with `select`, which knows no more;
nothing of ours does. Only processes that are ours alone raise it, not one that imports us.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

MOST_FILES: Final = 1 << 20
"""More is not asked for: there are libraries that close every number up to the limit."""


def reachable_files(soft: int, hard: int) -> int:
    """The soft limit that a process can have; `RLIM_INFINITY` is any number."""
    if soft == resource.RLIM_INFINITY:
        return soft
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    return max(soft, most)


def raise_file_limit() -> None:
    """Let this process open as many files as it can be allowed; where it cannot, all stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = reachable_files(soft, hard)
    if wanted != soft:
        with contextlib.suppress(OSError, ValueError):  # a sandbox forbids it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
