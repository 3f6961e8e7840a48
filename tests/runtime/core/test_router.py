"""The choice of a replica."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stagemesh.runtime.core.ring import IdRing
from stagemesh.runtime.core.router import Bindings, Router, RouterOptions, Unroutable
from stagemesh.spec.patterns import Policy

POLICIES = list(Policy)


def router(num: int, policy: Policy, *, seed: int | None = None, bound: float = 1.25) -> Router:
    """A router over that many replicas."""
    return Router(RouterOptions(policy=policy, seed=seed, load_bound=bound), range(num))


def picks(router: Router, count: int, key: str = "") -> list[int | Unroutable]:
    """The next `count` choices."""
    return [router.pick(key) for _ in range(count)]


def homes(router: Router, keys: list[str]) -> list[int]:
    """Where each key goes while nothing else runs."""
    found = []
    for key in keys:
        chosen = router.pick(key)
        assert isinstance(chosen, int)
        found.append(chosen)
        router.release(chosen)
    return found


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(-1, 310))
def test_the_next_of_a_ring_is_the_next_number(members: set[int], number: int) -> None:
    """Above the number, or the smallest."""
    ring = IdRing(members)
    assert ring.after(number) == min((one for one in members if one > number), default=min(members))
    assert list(ring) == sorted(members)
    assert (number in ring) == (number in members)


def test_round_robin_takes_replicas_in_ascending_order() -> None:
    """Every replica is taken once before the first is taken again."""
    assert picks(router(3, Policy.ROUND_ROBIN), 7) == [0, 1, 2, 0, 1, 2, 0]


def test_a_death_does_not_shift_the_order_of_the_others() -> None:
    """After the last pick the next living one in ascending order follows."""
    some = router(4, Policy.ROUND_ROBIN)
    assert picks(some, 2) == [0, 1]
    some.leave(2)
    assert picks(some, 4) == [3, 0, 1, 3]
    some.join(2)
    assert picks(some, 4) == [0, 1, 2, 3]


def test_least_queue_takes_the_idlest() -> None:
    """The replica with the fewest requests in flight is taken, wherever the cursor is."""
    some = router(3, Policy.LEAST_QUEUE)
    assert picks(some, 5) == [0, 1, 2, 0, 1]
    some.release(1)
    some.release(1)
    assert picks(some, 2) == [1, 2]


def test_least_queue_counts_costs() -> None:
    """One heavy request weighs as much as several light ones."""
    some = router(2, Policy.LEAST_QUEUE)
    assert some.pick(cost=3) == 0
    assert picks(some, 3) == [1, 1, 1]
    assert some.pick() == 0


def test_ties_of_least_queue_go_round() -> None:
    """Among equals the one after the last pick is taken, so short requests use all replicas."""
    assert homes(router(3, Policy.LEAST_QUEUE), [""] * 6) == [0, 1, 2, 0, 1, 2]


def test_random_is_repeatable_with_a_seed_and_reaches_all() -> None:
    """Equal seeds give equal choices, and no replica is left out."""
    one, two = (picks(router(3, Policy.RANDOM, seed=7), 60) for _ in range(2))
    assert one == two
    assert set(one) == {0, 1, 2}


def test_random_differs_from_going_round() -> None:
    """The policy is really applied: the order is not that of `round_robin`."""
    assert picks(router(3, Policy.RANDOM, seed=7), 30) != picks(router(3, Policy.ROUND_ROBIN), 30)


KEYS = [f"user-{number}" for number in range(1000)]


def test_a_key_keeps_its_replica() -> None:
    """Also in another process, and after a restart of everything."""
    found = homes(router(4, Policy.HASH), KEYS[:50])
    assert found == homes(router(4, Policy.HASH), KEYS[:50])
    program = (
        "from stagemesh.runtime.core.router import *;from stagemesh.spec.patterns import Policy\n"
        "r = Router(RouterOptions(policy=Policy.HASH), range(4))\n"
        "for n in range(50):\n p = r.pick(f'user-{n}'); print(p); r.release(p)"
    )
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found == [int(line) for line in told.split()]


def test_keys_spread_over_all_replicas() -> None:
    """No replica has more than twice the even share of keys."""
    counts = Counter(homes(router(4, Policy.HASH), KEYS))
    assert set(counts) == {0, 1, 2, 3}
    assert max(counts.values()) < 2 * len(KEYS) / 4


@pytest.mark.parametrize("gone", range(4))
def test_only_the_keys_of_a_lost_replica_move(gone: int) -> None:
    """And they come back with it."""
    some = router(4, Policy.HASH)
    before = homes(some, KEYS)
    some.leave(gone)
    after = homes(some, KEYS)
    assert all(one == two for one, two in zip(before, after, strict=True) if one != gone)
    assert gone not in after
    some.join(gone)
    assert homes(some, KEYS) == before


@given(
    num=st.integers(1, 6),
    bound=st.sampled_from([1.0, 1.25, 2.0]),
    keys=st.lists(st.sampled_from("abc"), max_size=60),
)
def test_no_key_floods_a_replica(num: int, bound: float, keys: list[str]) -> None:
    """Nobody ever holds more than the bound times the even share, rounded up."""
    some = router(num, Policy.HASH, bound=bound)
    for count, key in enumerate(keys, start=1):
        some.pick(key)
        assert max(some.backlog.values()) <= -(-bound * count // num)


def test_a_bound_below_the_even_share_is_refused() -> None:
    """Not everything would find a place."""
    with pytest.raises(ValueError, match="at least 1"):
        router(2, Policy.HASH, bound=0.9)


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_yet_and_nobody_left_are_told_apart(policy: Policy) -> None:
    """The first may be waited for; in neither case is anything counted."""
    some = router(0, policy)
    assert some.pick() is Unroutable.NONE_YET
    some.join(0)
    some.leave(0)
    some.leave(0)
    assert some.pick() is Unroutable.ALL_GONE
    assert some.backlog == {0: 0}


@pytest.mark.parametrize("policy", POLICIES)
def test_counts_stay_exact_whatever_the_ending(policy: Policy) -> None:
    """Ten thousand requests of random length over four replicas, a fifth of them left early."""
    some, chance = router(4, policy, seed=1), random.Random(5)  # noqa: S311  any order will do
    running: list[int] = []
    true = Counter(dict.fromkeys(range(4), 0))
    for number in range(10_000):
        while running and chance.random() < 0.5:
            replica = running.pop(chance.randrange(len(running)))
            some.release(replica)
            true[replica] -= 1
        least = min(true.values())
        chosen = some.pick(f"key-{number}")
        assert isinstance(chosen, int)
        assert policy is not Policy.LEAST_QUEUE or true[chosen] == least
        running.append(chosen)
        true[chosen] += 1
        assert some.backlog == true
    for replica in running:
        some.release(replica)
    assert some.total == 0


@given(num=st.integers(1, 6), count=st.integers(0, 40))
def test_round_robin_is_fair(num: int, count: int) -> None:
    """No replica is ever more than one request ahead of another."""
    some = router(num, Policy.ROUND_ROBIN)
    picks(some, count)
    assert max(some.backlog.values()) - min(some.backlog.values()) <= 1


def test_a_binding_stays_until_it_is_forgotten() -> None:
    """Asking again changes nothing, and is not counted again."""
    bindings = Bindings(router(3, Policy.ROUND_ROBIN))
    assert [bindings.bind(name) for name in ("a", "b", "a", "b")] == [0, 1, 0, 1]
    assert bindings.router.backlog == {0: 1, 1: 1, 2: 0}
    bindings.release("a")
    bindings.release("a")
    assert bindings.router.backlog == {0: 0, 1: 1, 2: 0}
    assert bindings.of("a") == 0
    bindings.forget("a")
    assert bindings.of("a") is None
    assert bindings.bind("a") == 2
    assert len(bindings) == 2


def test_a_companion_follows_its_parent() -> None:
    """Also when the policy says otherwise, or the replica takes nobody else."""
    bindings = Bindings(router(3, Policy.ROUND_ROBIN))
    bindings.bind("parent", cost=2)
    bindings.router.leave(0)
    assert bindings.bind("child", parent="parent") == 0
    assert bindings.router.backlog[0] == 3
    assert bindings.bind("orphan", parent="nobody") is Unroutable.PARENT_GONE


def test_a_companion_does_not_follow_into_another_process() -> None:
    """What the parent left behind died with the replica, whoever has its number now."""
    bindings = Bindings(router(1, Policy.ROUND_ROBIN))
    bindings.bind("parent")
    bindings.bind("child", parent="parent")
    bindings.router.leave(0)
    bindings.lose(0)
    bindings.router.join(0)
    assert bindings.of("parent") is None
    assert bindings.bind("late", parent="parent") is Unroutable.PARENT_GONE
    assert bindings.bind("child") is Unroutable.PARENT_GONE
    bindings.forget("parent")
    bindings.forget("child")
    assert bindings.router.total == 0


class RouterMachine(RuleBasedStateMachine):
    """Any order of picks, releases, joins and deaths against a plain account of them."""

    @initialize(num=st.integers(1, 5), policy=st.sampled_from(POLICIES), seed=st.integers(0, 9))
    def begin(self, num: int, policy: Policy, seed: int) -> None:
        """Make a router and its account."""
        self.policy = policy
        self.router = router(num, policy, seed=seed)
        self.bound: list[tuple[int, int]] = []
        self.known = set(range(num))
        self.alive = set(range(num))

    def backlog(self, replica: int) -> int:
        """What the account says."""
        return sum(cost for held, cost in self.bound if held == replica)

    @rule(key=st.text(max_size=3), cost=st.integers(1, 5))
    def pick(self, key: str, cost: int) -> None:
        """A pick is alive, and the idlest where that is the policy."""
        chosen = self.router.pick(key, cost)
        if isinstance(chosen, Unroutable):
            assert not self.alive
            return
        assert chosen in self.alive
        if self.policy is Policy.LEAST_QUEUE:
            assert self.backlog(chosen) == min(map(self.backlog, self.alive))
        self.bound.append((chosen, cost))

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A bound request ends, on a living or a dead replica."""
        place = data.draw(st.integers(0, len(self.bound) - 1))
        self.router.release(*self.bound.pop(place))

    @rule(replica=st.integers(0, 6))
    def leave(self, replica: int) -> None:
        """A replica dies, or one that is not there."""
        self.router.leave(replica)
        self.alive.discard(replica)

    @rule(replica=st.integers(0, 6))
    def join(self, replica: int) -> None:
        """A replica comes, or comes back."""
        self.router.join(replica)
        self.alive.add(replica)
        self.known.add(replica)

    @invariant()
    def counts_are_exact(self) -> None:
        """The router's counts are the account's."""
        assert self.router.backlog == {one: self.backlog(one) for one in self.known}
        assert self.router.eligible == self.alive
        assert self.router.has_eligible == bool(self.alive)


TestRouterMachine = RouterMachine.TestCase
