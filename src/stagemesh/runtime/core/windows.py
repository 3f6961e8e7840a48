"""Windows of `stage_pp`: how many requests or chunks a replica may have on one outgoing edge.

A window never lets younger requests shut out the oldest, which the consumer may be waiting for:
requests enter in the order in which they were submitted, and of the places for chunks one is kept
for the oldest request.
"""

from __future__ import annotations

from typing import Literal

from stagemesh.spec.frozen import frozen


@frozen
class StageWindow:
    """The bound of one edge."""

    size: int
    """Most requests, or chunks, in flight."""
    unit: Literal["requests", "chunks"] = "requests"
    """What is counted."""

    def admits_request(self, num_inside: int) -> bool:
        """Whether one more request may have chunks on the edge, the oldest one that has not.

        `num_inside` may, or have ended with chunks that are still on the edge.
        """
        return self.unit == "chunks" or num_inside < self.size

    def admits_chunk(self, total: int, *, is_oldest: bool, oldest_has_none: bool) -> bool:
        """Whether one more chunk may be sent with `total` of them on the edge."""
        kept = oldest_has_none and not is_oldest
        return self.unit == "requests" or total < self.size - kept
