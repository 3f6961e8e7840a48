"""What one hop costs where two stages share no memory, beside the same bytes over a bare socket.

`tcp` is the edge of `TcpConnector` over a TCP connection of this host. `bare` sends the bytes over
such a connection with `sendall`, into memory that is warm, and waits for one byte. `store` is the
edge of `MooncakeStoreConnector` with a master on this host, where its package is installed. Times
are medians; `best` is the fastest, and `p99` is reported only.

    python benchmarks/network_hop.py
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from _edge import edge_times, loopback
from _hops import in_child, repetitions, summary, times_of

from stagemesh.connectors import mooncake_store, tcp
from stagemesh.connectors.mooncake_store import MooncakeStoreOptions
from stagemesh.runtime.edge import Connector

SIZES = {"64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
MASTER = Path(sys.executable).with_name("mooncake_master")
START_S = 30


def bare_times(size: int) -> list[float]:
    """The same bytes without anything around them."""

    def consume(sock: socket.socket) -> None:
        room = memoryview(bytearray(size))
        while True:
            done = 0
            while done < size:
                count = sock.recv_into(room[done:])
                if not count:
                    return
                done += count
            sock.sendall(b"x")

    sock, pid = in_child(consume, loopback)
    data = memoryview(os.urandom(size))

    def hop() -> None:
        sock.sendall(data)
        sock.recv(1)

    times = times_of(hop, repetitions(size))
    sock.close()
    os.waitpid(pid, 0)
    return times


def store_of(port: int) -> Connector:
    """The connector through a master on this host."""
    options = MooncakeStoreOptions(metadata_server="P2PHANDSHAKE", master=f"127.0.0.1:{port}")
    return Connector(spec=mooncake_store.CONNECTOR, options=options)


def store_times(port: int, size: int) -> list[float]:
    """The edge through a store, in a process of its own: its client does not survive a fork."""
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(sender, "w") as pipe:
            json.dump(edge_times(store_of(port), size), pipe)
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        times: list[float] = json.load(pipe)
    os.waitpid(pid, 0)
    return times


def start_master() -> tuple[subprocess.Popen[bytes], int]:
    """Start a master and wait until it takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as other:
        port, admin = one.getsockname()[1], other.getsockname()[1]
    process = subprocess.Popen(
        [MASTER, "--rpc_address=127.0.0.1", f"--rpc_port={port}", f"--metrics_port={admin}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return process, port
    process.kill()
    raise TimeoutError(f"no master after {START_S} s")


def main() -> None:
    """Print everything as JSON."""
    stream = Connector(spec=tcp.CONNECTOR, options=tcp.TcpOptions())
    found: dict[str, dict[str, object]] = {}
    for name, size in SIZES.items():
        bare, edge = bare_times(size), edge_times(stream, size, loopback)
        found[name] = {
            **summary("bare", bare),
            **summary("tcp", edge),
            "bare_share": round(min(bare) / min(edge), 3),
        }
    if MASTER.exists():
        process, port = start_master()
        try:
            for name, size in SIZES.items():
                found[name] |= summary("store", store_times(port, size))
        finally:
            process.kill()
            process.wait()
    print(json.dumps({"benchmark": "network_hop", "edge": found}, indent=2))


if __name__ == "__main__":
    main()
