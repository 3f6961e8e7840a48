"""`InProcessConnector`: payloads are handed over as they are, between stages of one process."""

from __future__ import annotations

from typing import Annotated

from stagemesh.spec.bounds import Range
from stagemesh.spec.connector import ConnectorSpec, Reach
from stagemesh.spec.frozen import frozen


@frozen
class InProcessOptions:
    """What `extra` may hold."""

    window_bytes: Annotated[int, Range(minimum=64 * 1024)] = 256 * 1024 * 1024
    """Most bytes that were handed over and not released; a larger payload goes alone."""


CONNECTOR = ConnectorSpec(
    name="in_process",
    config_names=("InProcessConnector",),
    summary="by reference, between stages of one process",
    reach=Reach.PROCESS,
    options=InProcessOptions,
    by_reference=True,
    sender="stagemesh.connectors._in_process:InProcessSender",
    receiver="stagemesh.connectors._in_process:InProcessReceiver",
)
