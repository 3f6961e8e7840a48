"""What turns outputs of one stage into inputs of the next."""

from __future__ import annotations

from stagemesh.spec.bridge import Bridge, BridgeFactory
from stagemesh.spec.payload import Payload


class Whole:
    """Hands over everything at the end."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._kept: list[Payload] = []

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Keep until the last."""
        self._kept.append(payload)
        return self._kept if last else []


def test_a_class_with_the_method_is_a_bridge() -> None:
    """A factory makes one for each request; what it keeps back comes with the last."""
    factory: BridgeFactory = Whole
    first: Bridge = factory()
    second: Bridge = factory()
    one, two = Payload(meta={"text": "a"}), Payload(meta={"text": "b"})
    assert first.push(one, last=False) == []
    assert first.push(two, last=True) == [one, two]
    assert second.push(two, last=True) == [two]
