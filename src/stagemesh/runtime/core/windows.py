"""Windows of edges: how many requests and chunks a replica may have on its edge to another one.

A window never lets younger requests shut out the oldest, which the consumer may be waiting for:
requests enter in the order in which they were submitted, and of the places for chunks one is kept
for the oldest request.
"""

from __future__ import annotations

from stagemesh.spec.frozen import frozen


@frozen
class StageWindow:
    """The bounds of one edge."""

    requests: int | None = None
    """Most requests in flight; `None` for any number."""
    chunks: int | None = None
    """Most chunks in flight; `None` for any number."""

    def admits_request(self, num_inside: int) -> bool:
        """Whether one more request may have chunks on the edge, the oldest one that has not.

        `num_inside` may, or have ended with chunks that are still on the edge.
        """
        return self.requests is None or num_inside < self.requests

    def admits_chunk(self, total: int, *, is_oldest: bool, oldest_has_none: bool) -> bool:
        """Whether one more chunk may be sent with `total` of them on the edge."""
        kept = oldest_has_none and not is_oldest
        return self.chunks is None or total < self.chunks - kept
