"""One process' part in a Mooncake store: a client that all edges with the same options share.

A client is a segment of memory, a buffer and a score of threads, so a process has one and not one
for each edge. It is made by the first call that needs it, for making it waits for the master.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import socket
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, cast

from stagemesh.connectors._memory import aligned
from stagemesh.errors import ConnectorError

NO_ROOM: Final = -200
"""What the store says when no segment has room for an object."""
_GONE: Final = -704
"""What it says of an object that it does not have."""
_SLAB_BYTES: Final = 16 * 1024 * 1024
"""Pieces of which a segment consists; what is left over is not used."""
_CONNECT_S: Final = 3.0
"""How long the master may take to accept a connection; its own client tries for 90 seconds."""


class _Library(Protocol):
    """What is used of the client of the store."""

    def setup(self, *arguments: object) -> int: ...
    def put_parts(self, key: str, *parts: object, config: object) -> int: ...
    def get_buffer(self, key: str) -> object: ...
    def batch_remove(self, keys: list[str], force: bool) -> list[int]: ...  # noqa: FBT001  by place
    def remove_by_regex(self, pattern: str, force: bool) -> int: ...  # noqa: FBT001  by place
    def get_hostname(self) -> str: ...
    def close(self) -> int: ...


class Membership(Protocol):
    """What makes a client: processes and options that agree in it share one."""

    @property
    def host(self) -> str:
        """Name or address by which other hosts reach this one."""

    @property
    def metadata_server(self) -> str:
        """Address of the metadata service."""

    @property
    def master(self) -> str:
        """Address of the master."""

    @property
    def segment(self) -> int:
        """Bytes that this process contributes."""

    @property
    def localbuf(self) -> int:
        """Bytes of the buffer through which it reads and writes."""

    @property
    def proto(self) -> str:
        """How bytes travel."""


class MooncakeClient:
    """A client that is made when needed; every method but `hold` and `let_go` may wait."""

    def __init__(self, options: Membership) -> None:
        """Look for the library; the store itself is not met yet."""
        self._options = options
        self._library = _library()
        self._lock = threading.Lock()
        self._client: _Library | None = None
        self._config: object = None
        self._is_closed = False
        self._lying: dict[str, int] = {}
        """Objects in the segment of this process, and their bytes."""

    def put(self, key: str, parts: Sequence[memoryview | bytes]) -> int:
        """Write an object to this process' own segment; return what the store said of it.

        It is pinned there: the store never evicts it, and it goes when this process goes. A store
        that has no room there would take another process' segment, so it is not asked then.
        """
        num_bytes = sum(map(len, parts))
        segment = self._options.segment // _SLAB_BYTES * _SLAB_BYTES
        with self._lock:  # the buffer is as large as one payload
            client = self._connected()
            if sum(list(self._lying.values())) + num_bytes > segment:
                return NO_ROOM
            code = client.put_parts(key, *parts, config=self._config)
            if code == 0:
                self._lying[key] = num_bytes
            return code

    def get(self, key: str, num_bytes: int) -> memoryview:
        """Read an object into aligned memory; raises `ConnectorError` when it cannot be had."""
        with self._lock:
            found = self._connected().get_buffer(key)
            if found is not None:
                with memoryview(cast("Any", found)) as view, view.cast("B") as data:
                    if data.nbytes != num_bytes:
                        raise ValueError(
                            f"`{data.nbytes}` bytes lie in the store for a payload of `{num_bytes}`"
                        )
                    memory = aligned(num_bytes)
                    memory[:] = data
                return memory
        self._reach()
        raise ConnectorError(f"the payload is gone from the store at `{self._options.master}`")

    def remove(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Remove objects, whoever reads them; return those for which the store did not answer."""
        if self._client is None:
            return ()
        given = list(keys)
        for key in given:
            self._lying.pop(key, None)
        codes = self._client.batch_remove(given, True)  # noqa: FBT003  by place
        return tuple(key for key, code in zip(given, codes, strict=True) if code not in (0, _GONE))

    def remove_all(self, prefix: str) -> None:
        """Remove every object whose key begins so."""
        if self._client is not None:
            self._client.remove_by_regex(f"^{re.escape(prefix)}", True)  # noqa: FBT003  by place

    def close(self) -> None:
        """Give the segment back."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> _Library:
        if self._client is not None:
            return self._client
        if self._is_closed:
            raise ConnectorError("the client of the store is closed")
        self._reach()
        options = self._options
        client = cast("_Library", self._library.MooncakeDistributedStore())
        sizes = (options.segment, options.localbuf)
        code = client.setup(
            options.host, options.metadata_server, *sizes, options.proto, "", options.master
        )
        if code:
            raise ConnectorError(
                f"the store at `{options.master}` takes no segment of `{options.host}`"
                f" (code `{code}`)"
            )
        config = self._library.ReplicateConfig()
        config.preferred_segment = client.get_hostname()
        config.with_hard_pin = True
        self._client, self._config = client, config
        return client

    def _reach(self) -> None:
        """Raise `ConnectorError` unless the master takes connections."""
        master = self._options.master
        host, _, port = master.rpartition(":")
        if not port.isdigit():  # found in another way, such as a cluster of masters
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        except OSError as error:
            raise ConnectorError(f"no store answers at `{master}`: {error}") from error


_clients: Final[dict[Membership, tuple[MooncakeClient, list[object]]]] = {}
_clients_lock: Final = threading.Lock()


def hold(options: Membership, holder: object) -> MooncakeClient:
    """Return this process' client for these options; `holder` needs it until `let_go`."""
    with _clients_lock:
        if options not in _clients:
            _clients[options] = (MooncakeClient(options), [])
        client, holders = _clients[options]
        holders.append(holder)
        return client


def let_go(options: Membership, holder: object) -> None:
    """Say that it is needed no longer; with the last holder the client is closed."""
    with _clients_lock:
        client, holders = _clients[options]
        with contextlib.suppress(ValueError):
            holders.remove(holder)
        if holders:
            return
        del _clients[options]
    client.close()


def _library() -> Any:  # noqa: ANN401  a module without types
    try:
        return importlib.import_module("mooncake.store")
    except ImportError as error:
        raise ConnectorError(
            f"the client of the store is not installed (extra `mooncake`): {error}"
        ) from error
