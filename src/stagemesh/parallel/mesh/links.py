"""What a back end offers to a group: two operations, out of which all others are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class Pending(Protocol):
    """An operation under way."""

    def wait(self) -> None:
        """Return when what comes in has come in; raises `PeerError` when it cannot any more."""
        ...


class Link(Protocol):
    """The ranks of one group, connected. Every wait ends: by data, by a death, or by the deadline.

    All members call the same operations in the same order, and wait for one before the next.
    """

    def all_to_all(
        self, sends: Sequence[torch.Tensor], receives: Sequence[torch.Tensor]
    ) -> Pending:
        """Send to every member and fill what every member sends; by place, bytes, also none.

        Entries at the own place are empty. What is sent may not change before the wait is over.
        """
        ...

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Replace a contiguous tensor by the sum over the members, bitwise equal on all."""
        ...

    def close(self) -> None:
        """Let go of what connects; waits of other members end with `PeerError`."""
        ...
