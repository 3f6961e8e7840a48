"""A pipeline gives the same whatever carries its edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from stagemesh.errors import DeadlineError, StageFailedError
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
        shared = said(carried_by("shared_memory", {}))
        assert said(carried_by("mooncake_store", master.given)) == shared
        master.wait(lambda: not master.keys())
    finally:
        master.stop()


def test_a_store_that_hangs_or_dies_fails_its_requests_and_no_stage() -> None:
    """A request meets its deadline while the store hangs; the next one is told that it is down."""
    pytest.importorskip(
        "mooncake.store", reason="the extra `mooncake` is not installed", exc_type=ImportError
    )
    master = Master()
    try:
        plan = carried_by("mooncake_store", master.given)
        with Started(plan) as started:
            assert started.run("first").text
            master.pause()
            with pytest.raises(DeadlineError):
                started.call(started.omni.run("second", timeout_s=1.0))
            master.go_on()
            assert started.run("third").text
            master.stop()
            with pytest.raises(StageFailedError, match="an output was refused"):
                started.run("fourth")
    finally:
        master.stop()
