"""`MooncakeStoreConnector`: a distributed store between processes of several hosts.

Defaults and keys are those of the store's own setup: a metadata service that knows where segments
lie, a master that places objects in them, and a segment of memory that every process contributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from stagemesh.spec.bounds import Range
from stagemesh.spec.connector import ConnectorSpec, Reach
from stagemesh.spec.frozen import frozen


@frozen
class MooncakeStoreOptions:
    """What `extra` may hold."""

    host: str = "127.0.0.1"
    """Name or address by which other hosts reach this one."""
    metadata_server: str = "http://127.0.0.1:8080/metadata"
    """Address of the metadata service, or `P2PHANDSHAKE` to do without one."""
    master: str = "127.0.0.1:50051"
    """Address of the master."""
    segment: Annotated[int, Range(minimum=16 * 1024 * 1024)] = 512 * 1024 * 1024
    """Bytes of memory that one process contributes to the store, in pieces of 16 MiB."""
    localbuf: Annotated[int, Range(minimum=64 * 1024)] = 64 * 1024 * 1024
    """Bytes of the buffer through which one process reads and writes; no payload is larger."""
    proto: Literal["tcp", "rdma"] = "tcp"
    """How bytes travel."""


def _endpoints(options: object) -> Mapping[str, str]:
    assert isinstance(options, MooncakeStoreOptions)
    return {"metadata_server": options.metadata_server, "master": options.master}


CONNECTOR = ConnectorSpec(
    name="mooncake_store",
    config_names=("MooncakeStoreConnector", "MooncakeConnector"),
    summary="a distributed store between processes of several hosts",
    reach=Reach.NETWORK,
    options=MooncakeStoreOptions,
    shared_options=frozenset({"host", "metadata_server", "master", "segment", "localbuf", "proto"}),
    local_options=("host",),
    sender="stagemesh.connectors._mooncake_store.ends:MooncakeStoreSender",
    receiver="stagemesh.connectors._mooncake_store.ends:MooncakeStoreReceiver",
    blocking=True,
    endpoints=_endpoints,
)
