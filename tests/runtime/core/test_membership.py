"""Who the replicas of a stage are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stagemesh.runtime.core.membership import (
    Change,
    Health,
    Joined,
    Left,
    Membership,
    Restart,
    RestartPolicy,
    Retired,
    health_of,
)

POLICY = RestartPolicy()
NEVER = RestartPolicy(mode="never")


def serving(*replicas: int, policy: RestartPolicy = POLICY) -> Membership:
    """A stage with these replicas, all of them in their first process."""
    members = Membership(policy)
    for replica in replicas:
        members.ready(replica, 0)
    return members


def test_a_replica_serves_when_it_is_ready() -> None:
    """Before that it is only expected."""
    members = Membership()
    assert members.expected(0, 0) == []
    assert (members.states[0], members.health) == (Health.STARTING, Health.STARTING)
    assert members.ready(0, 0) == [Joined(replica=0, incarnation=0)]
    assert members.ready(0, 0) == []
    assert members.health is Health.SERVING


def test_a_worker_that_registers_again_replaces_its_predecessor_at_once() -> None:
    """Although nobody has noticed the death; what is heard of the dead one then is nothing."""
    members = serving(0)
    assert members.ready(0, 1) == [
        Left(replica=0, incarnation=0),
        Joined(replica=0, incarnation=1),
    ]
    assert members.ended(0, 0, now=5) == []
    assert members.ready(0, 0) == []
    assert members.expected(0, 1) == []
    assert members.is_current(0, 1)
    assert not members.is_current(0, 0)
    assert not members.is_current(7, 0)


def test_the_last_death_makes_a_stage_unhealthy() -> None:
    """Until somebody serves again."""
    members = serving(0, 1, policy=NEVER)
    assert members.ended(0, 0, now=0) == [Left(replica=0, incarnation=0)]
    seen = [members.health]
    members.ended(1, 0, now=0)
    seen.append(members.health)
    members.ready(1, 1)
    seen.append(members.health)
    assert seen == [Health.SERVING, Health.UNHEALTHY, Health.SERVING]


def test_a_drained_replica_goes_for_good() -> None:
    """It takes nothing new, and its end is no failure."""
    members = serving(0, 1)
    assert members.drain(0) == [Retired(replica=0)]
    assert members.drain(0) == members.drain(9) == []
    assert members.health is Health.SERVING
    assert members.ended(0, 0, now=1) == [Left(replica=0, incarnation=0)]
    assert members.ended(0, 0, now=1) == []


def test_a_stage_that_stops_drains_and_restarts_nobody() -> None:
    """Who gets ready after that does not serve."""
    members = serving(0)
    members.expected(1, 0)
    assert members.stop() == [Retired(replica=0)]
    assert members.ready(1, 0) == []
    seen = [members.health]
    members.ended(0, 0, now=1)
    assert members.ended(1, 0, now=1) == [Left(replica=1, incarnation=0)]
    seen.append(members.health)
    assert seen == [Health.DRAINING, Health.STOPPED]


def test_restarts_wait_longer_each_time_and_are_few() -> None:
    """Three within ten minutes, then none until the first is forgotten."""
    members = serving(0)
    delays = []
    for incarnation, now in enumerate([0, 10, 20]):
        *_, again = members.ended(0, incarnation, now)
        assert isinstance(again, Restart)
        assert again.incarnation == incarnation + 1
        delays.append(again.delay_s)
        members.ready(0, incarnation + 1)
    assert delays == [1, 2, 4]
    assert members.ended(0, 3, now=30) == [Left(replica=0, incarnation=3)]
    members.ready(0, 4)
    *_, again = members.ended(0, 4, now=601)
    assert again == Restart(replica=0, incarnation=5, delay_s=4)


@given(st.lists(st.floats(0, 2000), max_size=20))
def test_a_window_never_holds_more_restarts_than_the_policy(times: list[float]) -> None:
    """Whatever the times of the deaths."""
    decided: list[float] = []
    for now in sorted(times):
        delay_s = POLICY.delay_s(decided, now)
        recent = [at for at in decided if now - at < POLICY.window_s]
        assert (delay_s is None) == (len(recent) == POLICY.most)
        assert delay_s is None or delay_s <= POLICY.longest_delay_s
        if delay_s is not None:
            decided.append(now)
    assert NEVER.delay_s([], 0) is None


def test_delays_are_bounded() -> None:
    """However many restarts are allowed."""
    assert RestartPolicy(most=99).delay_s([0.0] * 50, 1) == POLICY.longest_delay_s


@pytest.mark.parametrize(
    ("stages", "worst"),
    [
        ([Health.SERVING, Health.SERVING], Health.SERVING),
        ([Health.SERVING, Health.UNHEALTHY], Health.UNHEALTHY),
        ([Health.STARTING, Health.SERVING], Health.STARTING),
        ([Health.DRAINING, Health.SERVING, Health.STOPPED], Health.DRAINING),
        ([], Health.STARTING),
    ],
)
def test_a_system_is_as_well_as_its_worst_stage(stages: list[Health], worst: Health) -> None:
    """So one number says whether to send it requests."""
    assert health_of(stages) is worst


class AnyMembers(RuleBasedStateMachine):
    """Any order of events, of old processes too, against who is really there."""

    @initialize()
    def begin(self) -> None:
        """Nobody has joined."""
        self.members = Membership(RestartPolicy(most=1, window_s=10))
        self.serving: dict[int, int] = {}
        self.newest: dict[int, int] = {}
        self.now = 0.0

    def carry_out(self, changes: list[Change]) -> None:
        """Follow what the machine says."""
        for change in changes:
            match change:
                case Joined():
                    assert change.replica not in self.serving
                    self.serving[change.replica] = change.incarnation
                case Left():
                    held = self.serving.pop(change.replica, change.incarnation)
                    assert held == change.incarnation
                case Restart():
                    assert change.replica not in self.serving
                    assert change.incarnation == self.newest[change.replica] + 1
                case Retired():
                    assert change.replica in self.serving

    @rule(replica=st.integers(0, 2), incarnation=st.integers(0, 4), ready=st.booleans())
    def comes(self, replica: int, incarnation: int, *, ready: bool) -> None:
        """A process starts or is ready, perhaps one that was replaced long ago."""
        is_new = incarnation > self.newest.get(replica, -1)
        before = self.serving.get(replica)
        come = self.members.ready if ready else self.members.expected
        self.carry_out(come(replica, incarnation))
        self.newest[replica] = max(incarnation, self.newest.get(replica, -1))
        if is_new:
            assert (replica in self.serving) == ready
        elif before is not None:
            assert self.serving[replica] == before

    @rule(replica=st.integers(0, 2), incarnation=st.integers(0, 4), after=st.floats(0, 9))
    def ends(self, replica: int, incarnation: int, after: float) -> None:
        """A process ends, perhaps not for the first time."""
        self.now += after
        before = dict(self.serving)
        self.carry_out(self.members.ended(replica, incarnation, self.now))
        if incarnation != self.newest.get(replica):
            assert self.serving == before
        else:
            assert replica not in self.serving

    @rule(replica=st.integers(0, 2))
    def drains(self, replica: int) -> None:
        """A replica is to finish."""
        self.carry_out(self.members.drain(replica))

    @invariant()
    def only_the_newest_serve(self) -> None:
        """An older process never does."""
        assert all(self.newest[one] == number for one, number in self.serving.items())
        assert all(self.members.is_current(*item) for item in self.serving.items())


TestMembers = AnyMembers.TestCase
