"""`TcpConnector`: payloads travel behind their messages, over the stream that two replicas have.

It shares no memory and needs no service, so it carries wherever the runtime has a stream. The
sender keeps one copy of what is on its way; the receiver reads it to where it stays.
"""

from __future__ import annotations

from typing import Annotated

from stagemesh.spec.bounds import Range
from stagemesh.spec.connector import ConnectorSpec, Reach
from stagemesh.spec.frozen import frozen


@frozen
class TcpOptions:
    """What `extra` may hold."""

    window_bytes: Annotated[int, Range(minimum=64 * 1024)] = 64 * 1024 * 1024
    """Most bytes between two replicas that were sent and not released; a larger one goes alone."""
    max_payload_bytes: Annotated[int, Range(minimum=0)] = 1024 * 1024 * 1024
    """Bytes of the largest payload."""


def _bulk_limit(options: object) -> int:
    assert isinstance(options, TcpOptions)
    return options.max_payload_bytes


CONNECTOR = ConnectorSpec(
    name="tcp",
    config_names=("TcpConnector",),
    summary="behind the messages of the stream, to any host",
    reach=Reach.NETWORK,
    options=TcpOptions,
    sender="stagemesh.connectors._tcp:TcpSender",
    receiver="stagemesh.connectors._tcp:TcpReceiver",
    bulk_limit=_bulk_limit,
)
