"""Histories shared out over processes, in small shares: all of them have work until the end."""

from __future__ import annotations

import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

from stagemesh.testing.simulator.many import Summary

_SHARE: Final = 10_000
"""Most histories of a share: seconds of work, beside which the start of a process is little."""


def play_shared(
    start: int, count: int, processes: int, tell: Callable[[str], None] | None = None
) -> Summary:
    """Play `count` histories from seed `start` on, in so many processes at a time.

    `tell` is called with a line about every share that was played. Raises `ChildProcessError`,
    which names the seeds, when a process does not come to the end of its share.
    """
    size, end = max(min(_SHARE, -(-count // processes)), 1), start + count
    shares = deque(range(at, min(at + size, end)) for at in range(start, end, size))
    parts: list[Summary] = []
    with selectors.DefaultSelector() as running:
        try:
            while shares or running.get_map():
                while shares and len(running.get_map()) < processes:
                    _start(shares.popleft(), running)
                for key, _ in running.select():  # whatever is said is said at the end
                    share, process = key.data
                    said = process.communicate()[0]
                    running.unregister(key.fileobj)  # not before it has ended: this may be stopped
                    parts.append(_part(share, process.returncode, said))
                    if tell is not None:
                        tell(_told(share, parts[-1]))
        except BaseException as error:
            for key in running.get_map().values():
                error.add_note(f"{_named(key.data[0])} were being played")
            raise
        finally:
            for key in running.get_map().values():
                _end(key.data[1])
    return Summary.together(parts)


def _start(share: range, running: selectors.BaseSelector) -> None:
    process = subprocess.Popen(  # noqa: S603  this very interpreter and package
        [
            *(sys.executable, "-m", __package__, "--json"),
            *("--start", str(share.start), "--count", str(len(share))),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None, "it is a pipe"
    running.register(process.stdout, selectors.EVENT_READ, (share, process))


def _end(process: subprocess.Popen[str]) -> None:
    """End one whatever state it is in; what it said is of no use any more."""
    process.kill()
    process.wait()
    assert process.stdout is not None, "it is a pipe"
    process.stdout.close()


def _part(share: range, code: int, said: str) -> Summary:
    if code != 0:
        raise ChildProcessError(f"{_named(share)}: their process ended with {code}")
    return Summary.from_json(said)


def _told(share: range, part: Summary) -> str:
    broken = ", ".join(str(seed) for seed in part.broken)
    return f"{_named(share)}: {f'rules were broken by {broken}' if broken else 'every rule held'}"


def _named(share: range) -> str:
    return f"seeds {share.start} to {share.stop - 1}"
