"""A way that peers use: a new shared-memory segment with a lock file per payload, found by polling.

The producer packs metadata and bytes, makes a segment that is named after the payload's key, and
writes it under the lock of a file of that name. The consumer knows the key and looks for it: again
at once after a find, a millisecond later otherwise. It locks, copies out, removes both and unpacks.
Written from that description alone.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec
from _hops import in_child, repetitions, times_of

_POLL_S: Final = 0.001
_FOLDER: Final = Path("/dev/shm")  # noqa: S108  where segments are
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder()


def _put(key: str, locks: Path, data: memoryview) -> None:
    packed = _encoder.encode({"shape": [len(data)], "dtype": "uint8", "data": data.tobytes()})
    with (locks / key).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fd = os.open(_FOLDER / key, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.ftruncate(fd, len(packed))
        with mmap.mmap(fd, len(packed)) as segment:
            segment[:] = packed
        os.close(fd)


def _get(key: str, locks: Path) -> bytearray | None:
    try:
        fd = os.open(_FOLDER / key, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with (locks / key).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ) as segment:
            packed = bytes(segment)
        os.close(fd)
        (_FOLDER / key).unlink()
        (locks / key).unlink()
    return bytearray(_decoder.decode(packed)["data"])


def hop_times(size: int) -> list[float]:
    """Microseconds from handing over a payload to the word that it has been read."""
    prefix = f"stagemesh-reference-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        locks = Path(folder)

        def consume(sock: socket.socket) -> None:
            number = 0
            sock.setblocking(False)  # noqa: FBT003  signature of the standard library
            while True:
                data = _get(f"{prefix}-{number}", locks)
                if data is None:
                    time.sleep(_POLL_S)
                    try:
                        if not sock.recv(1):
                            return
                    except BlockingIOError:
                        continue
                else:
                    number += 1
                    sock.send(data[:1])

        sock, pid = in_child(consume)
        payload, numbers = memoryview(os.urandom(size)), iter(range(1 << 30))

        def hop() -> None:
            _put(f"{prefix}-{next(numbers)}", locks, payload)
            sock.recv(1)

        times = times_of(hop, repetitions(size))
        sock.close()
        os.waitpid(pid, 0)
    return times
