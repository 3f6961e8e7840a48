"""Another start that says nothing any more, although its streams have not ended."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config.environment import TOKEN
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.runtime import monitor
from stagemesh.runtime.health import ReplicaState
from stagemesh.runtime.launchers import remote
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.launchers.starts import HEAD, SECRET, Starts
from tests.runtime.started import Started

pytestmark = pytest.mark.slow

PROXY = "127.0.0.9"
SILENCE_S = 1.0
"""What is said; without it that would be four times as long here."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, SECRET)
    monkeypatch.setattr(monitor, "INTERVAL_S", 0.5)
    monkeypatch.setattr(remote, "GONE_S", 0.2)


class Way:
    """A way to the head, which passes bytes on until it is closed to them."""

    def __init__(self, port: int) -> None:
        """It leads to that port."""
        self._target = (HEAD, port)
        self._listener = socket.create_server((PROXY, 0))
        self.port: int = self._listener.getsockname()[1]
        self._socks: list[socket.socket] = []
        self._is_open = threading.Event()
        self._is_open.set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def drop(self) -> None:
        """From now on whatever is sent is lost, and nobody is told."""
        self._is_open.clear()

    def close(self) -> None:
        """End all of it."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for sock in self._socks:
            sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._socks):
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:  # the head is not there yet
                near.close()
                continue
            self._socks += (near, far)
            for one, other in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass_on, args=(one, other))
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                if self._is_open.is_set():
                    other.sendall(data)
            if self._is_open.is_set():
                other.shutdown(socket.SHUT_WR)
        except OSError:
            return


def reason_of(head: Started) -> str:
    """Wait until the talker is lost, and return why."""

    def is_lost() -> bool:
        state = head.omni.health().stages[1].replicas[0].state
        return state not in (ReplicaState.SERVING, ReplicaState.UNHEALTHY)

    head.call(head.until(is_lost))
    return str(head.omni.health().stages[1].replicas[0].reason)


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    """A model of which one stage is to be brought by somebody else."""
    stages = [replace(stage, recovery=RecoveryPlan(restart="never")) for stage in three_stages()]
    with Starts(fake_plan(stages), tmp_path) as found:
        yield found


def test_a_host_that_drops_what_is_sent_is_found_in_time(starts: Starts) -> None:
    """No stream ends, and no error comes."""
    with ExitStack() as stack:
        way = Way(starts.port)
        stack.callback(way.close)
        starts.worker(1, "127.0.0.3", omni_master_address=PROXY, omni_master_port=way.port)
        starts.worker(2, "127.0.0.4")
        plan = starts.plan_of(0, omni_heartbeat_timeout=SILENCE_S)
        head = stack.enter_context(Started(plan))
        assert head.run().text == "hi#0hi#1hi#2"
        way.drop()
        assert "it has not answered for 1 s" in reason_of(head)


def test_a_start_that_stands_still_is_found_in_time(starts: Starts) -> None:
    """Its kernel answers, and it does not."""
    worker = starts.worker(1, "127.0.0.3")
    starts.worker(2, "127.0.0.4")
    with Started(starts.plan_of(0, omni_heartbeat_timeout=SILENCE_S)) as head:
        assert head.run().text == "hi#0hi#1hi#2"
        os.kill(worker.process.pid, signal.SIGSTOP)
        try:
            assert "it has not answered for 1 s" in reason_of(head)
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
