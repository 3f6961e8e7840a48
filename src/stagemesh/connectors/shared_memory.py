"""`SharedMemoryConnector`: an anonymous memory file per edge, between processes of one host.

The file has no name, so nothing can be left behind whatever dies; its descriptor travels with the
first ticket. Small payloads lie in the ticket itself.
"""

from __future__ import annotations

from typing import Annotated

from stagemesh.spec.bounds import Range
from stagemesh.spec.connector import ConnectorSpec, Reach
from stagemesh.spec.frozen import frozen


@frozen
class SharedMemoryOptions:
    """What `extra` may hold."""

    arena_bytes: Annotated[int, Range(minimum=128 * 1024)] = 8 * 1024 * 1024
    """Bytes shared by two replicas of an edge, in whole pages; taken only as far as used."""
    giant_bytes: Annotated[int, Range(minimum=0)] = 1024 * 1024 * 1024
    """Most bytes, in whole pages, of all payloads together that are too big for the arena."""


CONNECTOR = ConnectorSpec(
    name="shared_memory",
    config_names=("SharedMemoryConnector",),
    summary="anonymous shared memory between processes of one host",
    reach=Reach.HOST,
    is_default=True,
    options=SharedMemoryOptions,
    shared_options=frozenset(),
    sender="stagemesh.connectors._shared_memory:SharedMemorySender",
    receiver="stagemesh.connectors._shared_memory:SharedMemoryReceiver",
)
