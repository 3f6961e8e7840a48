"""The choice of a replica."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stagemesh.runtime.core.router import Router
from stagemesh.spec.patterns import Policy

POLICIES = [Policy.ROUND_ROBIN, Policy.RANDOM, Policy.LEAST_QUEUE]


def picks(router: Router, count: int) -> list[int | None]:
    """The next `count` choices."""
    return [router.pick() for _ in range(count)]


def test_round_robin_takes_replicas_in_ascending_order() -> None:
    """Every replica is taken once before the first is taken again."""
    assert picks(Router(3, Policy.ROUND_ROBIN), 7) == [0, 1, 2, 0, 1, 2, 0]


def test_a_death_does_not_shift_the_order_of_the_others() -> None:
    """After the last pick the next living one in ascending order follows."""
    router = Router(4, Policy.ROUND_ROBIN)
    assert picks(router, 2) == [0, 1]
    router.leave(2)
    assert picks(router, 4) == [3, 0, 1, 3]


def test_least_queue_takes_the_idlest() -> None:
    """The replica with the fewest requests in flight is taken, wherever the cursor is."""
    router = Router(3, Policy.LEAST_QUEUE)
    assert picks(router, 5) == [0, 1, 2, 0, 1]
    router.release(1)
    router.release(1)
    assert picks(router, 2) == [1, 2]


def test_ties_of_least_queue_go_round() -> None:
    """Among equals the one after the last pick is taken, so short requests use all replicas."""
    router = Router(3, Policy.LEAST_QUEUE)
    seen = []
    for _ in range(6):
        chosen = router.pick()
        assert chosen is not None
        seen.append(chosen)
        router.release(chosen)
    assert seen == [0, 1, 2, 0, 1, 2]


def test_random_is_repeatable_with_a_seed_and_reaches_all() -> None:
    """Equal seeds give equal choices, and no replica is left out."""
    one, two = (picks(Router(3, Policy.RANDOM, seed=7), 60) for _ in range(2))
    assert one == two
    assert set(one) == {0, 1, 2}


def test_random_differs_from_going_round() -> None:
    """The policy is really applied: the order is not that of `round_robin`."""
    assert picks(Router(3, Policy.RANDOM, seed=7), 30) != picks(Router(3, Policy.ROUND_ROBIN), 30)


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_picked_when_all_are_down(policy: Policy) -> None:
    """Without a living replica there is no choice, and nothing is counted."""
    router = Router(2, policy)
    router.leave(0)
    router.leave(1)
    assert router.pick() is None
    assert router.in_flight == (0, 0)


def test_hash_is_refused() -> None:
    """A policy that is not carried out is never accepted in silence."""
    with pytest.raises(ValueError, match="hash"):
        Router(2, Policy.HASH)


@given(num=st.integers(1, 6), count=st.integers(0, 40))
def test_round_robin_is_fair(num: int, count: int) -> None:
    """No replica is ever more than one request ahead of another."""
    router = Router(num, Policy.ROUND_ROBIN)
    picks(router, count)
    assert max(router.in_flight) - min(router.in_flight) <= 1


class RouterMachine(RuleBasedStateMachine):
    """Any order of picks, releases and deaths against a plain account of them."""

    @initialize(num=st.integers(1, 5), policy=st.sampled_from(POLICIES), seed=st.integers(0, 9))
    def begin(self, num: int, policy: Policy, seed: int) -> None:
        """Make a router and its account."""
        self.policy = policy
        self.router = Router(num, policy, seed=seed)
        self.bound = [0] * num
        self.alive = set(range(num))

    @rule()
    def pick(self) -> None:
        """A pick is alive, and the idlest where that is the policy."""
        chosen = self.router.pick()
        assert (chosen is None) == (not self.alive)
        if chosen is not None:
            assert chosen in self.alive
            if self.policy is Policy.LEAST_QUEUE:
                assert self.bound[chosen] == min(self.bound[one] for one in self.alive)
            self.bound[chosen] += 1

    @precondition(lambda self: any(self.bound))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A bound request ends, on a living or a dead replica."""
        busy = [replica for replica, count in enumerate(self.bound) if count]
        replica = data.draw(st.sampled_from(busy))
        self.router.release(replica)
        self.bound[replica] -= 1

    @rule(data=st.data())
    def down(self, data: st.DataObject) -> None:
        """A replica dies."""
        replica = data.draw(st.integers(0, len(self.bound) - 1))
        self.router.leave(replica)
        self.alive.discard(replica)

    @invariant()
    def counts_are_exact(self) -> None:
        """The router's counts are the account's."""
        assert self.router.in_flight == tuple(self.bound)
        assert set(self.router.up) == self.alive


TestRouterMachine = RouterMachine.TestCase
