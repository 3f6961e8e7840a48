"""How one stage's output becomes the next stage's input."""

from __future__ import annotations

from typing import Protocol

from stagemesh.spec.payload import Payload


class Bridge(Protocol):
    """The converter of one request on one edge; it lives in the producing stage's process."""

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Take one output of the producer and return what goes to the consumer now.

        With `last` everything kept back is returned. The payload is not borrowed: it may be kept.
        """
        ...


class BridgeFactory(Protocol):
    """What a pipeline's `*_process_next_stage_input_func` refers to."""

    def __call__(self) -> Bridge:
        """Make the converter of one request."""
        ...
