"""A real store on this host, for tests."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from stagemesh.config.plain import plain_fields
from stagemesh.connectors.mooncake_store import MooncakeStoreOptions
from tests.waiting import WAIT_S

SEGMENT = 16 * 1024 * 1024


def free_port() -> int:
    """A port that nobody listens on."""
    with contextlib.closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Master:
    """A master of a store, on this host."""

    def __init__(self) -> None:
        """Start it and wait until it answers."""
        self.port, self._admin = free_port(), free_port()
        self._process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("mooncake_master")),
                "--rpc_address=127.0.0.1",
                f"--rpc_port={self.port}",
                f"--metrics_port={self._admin}",
                "--client_ttl=2",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.wait(self._answers)

    @property
    def options(self) -> MooncakeStoreOptions:
        """Options that lead here."""
        return MooncakeStoreOptions(
            metadata_server="P2PHANDSHAKE",
            master=f"127.0.0.1:{self.port}",
            segment=SEGMENT,
            localbuf=8 * 1024 * 1024,
        )

    @property
    def given(self) -> Mapping[str, object]:
        """Those options as a plan holds them."""
        return plain_fields(self.options)

    def pause(self) -> None:
        """Let it answer nobody any more."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        self._process.send_signal(signal.SIGCONT)

    def keys(self) -> set[str]:
        """Every key of the store."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/get_all_keys") as answer:
            return set(answer.read().decode().split())

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    @staticmethod
    def wait(until: Callable[[], bool]) -> None:
        """Look again and again, for as long as a busy machine may need."""
        deadline = time.monotonic() + WAIT_S
        while not until():
            assert time.monotonic() < deadline, "it came in time"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            self.keys()
        except OSError:
            return False
        return True
