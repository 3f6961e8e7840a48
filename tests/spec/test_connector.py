"""What a connector promises when its declaration says nothing."""

from __future__ import annotations

from stagemesh.spec.connector import ConnectorSpec, Reach
from stagemesh.spec.pipeline import NoOptions


def test_a_plain_connector_meets_nowhere_and_sends_no_bulk() -> None:
    """So no two of them can be in each other's way, and bulk that comes all the same ends it."""
    plain = ConnectorSpec(name="plain", config_names=(), summary="", reach=Reach.HOST)
    assert plain.endpoints(NoOptions()) == {}
    assert plain.bulk_limit(NoOptions()) == 0
