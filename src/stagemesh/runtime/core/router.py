"""Which replica of a stage takes a request. Pure: counts in, a choice out."""

from __future__ import annotations

import random

from stagemesh.spec.patterns import ROUTED_POLICIES, Policy


class Router:
    """The replicas of one stage, with the exact number of requests in flight on each."""

    def __init__(self, num_replicas: int, policy: Policy, *, seed: int | None = None) -> None:
        """Begin with every replica up and idle; `seed` makes `random` repeatable."""
        if policy not in ROUTED_POLICIES:
            raise ValueError(f"policy `{policy.value}` is not executed")
        self._policy = policy
        self._in_flight = [0] * num_replicas
        self._up = [True] * num_replicas
        self._last = num_replicas - 1
        self._random = random.Random(seed)  # noqa: S311  spreads load, guards nothing

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Requests bound to each replica and not yet released."""
        return tuple(self._in_flight)

    @property
    def up(self) -> tuple[int, ...]:
        """Replicas that can take requests."""
        return tuple(replica for replica, is_up in enumerate(self._up) if is_up)

    def pick(self) -> int | None:
        """Bind one request to a replica and return it; `None` when no replica is up."""
        eligible = self.up
        if not eligible:
            return None
        if self._policy is Policy.RANDOM:
            chosen = self._random.choice(eligible)
        else:
            chosen = self._next_of(self._candidates(eligible))
            self._last = chosen
        self._in_flight[chosen] += 1
        return chosen

    def release(self, replica: int) -> None:
        """One request bound to that replica has ended there."""
        assert self._in_flight[replica] > 0, f"replica {replica} has nothing to release"
        self._in_flight[replica] -= 1

    def join(self, replica: int) -> None:
        """It takes requests from now on; what is still bound to that number stays counted."""
        missing = replica + 1 - len(self._up)
        self._in_flight += [0] * missing
        self._up += [False] * missing
        self._up[replica] = True

    def leave(self, replica: int) -> None:
        """Give that replica nothing more; what is bound to it is still to be released."""
        self._up[replica] = False

    def _candidates(self, eligible: tuple[int, ...]) -> tuple[int, ...]:
        if self._policy is not Policy.LEAST_QUEUE:
            return eligible
        least = min(self._in_flight[replica] for replica in eligible)
        return tuple(replica for replica in eligible if self._in_flight[replica] == least)

    def _next_of(self, candidates: tuple[int, ...]) -> int:
        """The next candidate in ascending order after the last pick, the first one after the end.

        The cursor is a replica, not a count, so a death does not shift the others' order.
        """
        return next((replica for replica in candidates if replica > self._last), candidates[0])
