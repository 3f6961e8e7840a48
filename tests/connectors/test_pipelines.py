"""A pipeline gives the same whatever carries its edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from stagemesh.plan.values import Plan
from stagemesh.spec.payload import Payload
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.connectors.store import Master
from tests.runtime.started import Started, collect

pytestmark = pytest.mark.slow


def carried_by(connector: str, options: Mapping[str, object]) -> Plan:
    """Three stages whose edges have that connector."""
    plan = fake_plan(three_stages(talker=(2, "round_robin")))
    edges = (replace(edge, connector=connector, options=options) for edge in plan.edges)
    return replace(plan, edges=tuple(edges))


def said(plan: Plan) -> list[tuple[str, Mapping[str, object], list[bytes]]]:
    """Everything that four requests give, in the order of each stage."""
    found = []
    with Started(plan) as started:
        for number in range(4):
            outputs = started.call(collect(started.omni, f"question {number}"))
            found += [(one.stage, one.payload.meta, bytes_of(one.payload)) for one in outputs]
    return sorted(found, key=lambda item: (item[0], str(item[1])))


def bytes_of(payload: Payload) -> list[bytes]:
    """The bytes of every buffer."""
    return [bytes(buffer.data) for buffer in payload.buffers]


def test_bytes_behind_messages_give_the_same() -> None:
    """Shared memory and streams carry alike."""
    shared = said(carried_by("shared_memory", {}))
    assert said(carried_by("tcp", {"window_bytes": 64 * 1024})) == shared


def test_a_store_gives_the_same_and_is_empty_afterwards() -> None:
    """With an end of each edge on a thread of its own; no key is left when the stages are gone."""
    pytest.importorskip(
        "mooncake.store", reason="the extra `mooncake` is not installed", exc_type=ImportError
    )
    master = Master()
    try:
        options = {
            "metadata_server": "P2PHANDSHAKE",
            "master": master.options.master,
            "segment": 16 * 1024 * 1024,
        }
        shared = said(carried_by("shared_memory", {}))
        assert said(carried_by("mooncake_store", options)) == shared
        master.wait(lambda: not master.keys())
    finally:
        master.stop()
