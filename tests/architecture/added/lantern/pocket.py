"""The connector `pocket`: everything travels in the ticket itself."""

from __future__ import annotations

from stagemesh.spec.connector import ConnectorSpec, Reach

CONNECTOR = ConnectorSpec(
    name="pocket",
    config_names=("PocketConnector",),
    summary="a connector of a third party",
    reach=Reach.HOST,
    sender="lantern.pocket_ends:PocketSender",
    receiver="lantern.pocket_ends:PocketReceiver",
)
