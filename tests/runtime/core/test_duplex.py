"""Where full-duplex sessions go, and what they hold."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stagemesh.runtime.core.duplex import Placed, SessionRefusal, Sessions, SessionState
from tests.runtime.talking import SHARED, duplex_plan


def group_of(answer: Placed | SessionRefusal) -> int | None:
    """The group of a session that found a place."""
    assert isinstance(answer, Placed), answer
    return answer.group


def test_the_worked_check_of_shared_counters() -> None:
    """A, then B because its fullest replica is as full but fewer are reserved, then nobody."""
    sessions = Sessions(duplex_plan(SHARED))
    first = sessions.open("a", 0)
    assert first == Placed(group=0, replicas={0: 0, 1: 0})
    assert dict(sessions.reserved) == {(0, 0): 1, (1, 0): 1, (0, 1): 0}
    assert group_of(sessions.open("b", 0)) == 1
    refusal = sessions.open("c", 0)
    assert isinstance(refusal, SessionRefusal)
    assert "replica_capacity_exhausted" in refusal.message
    assert (refusal.code, refusal.retryable) == ("resource_exhausted", True)
    assert sessions.reserved[0, 0] == 1


def test_the_global_limit_is_told_first() -> None:
    """With its number."""
    sessions = Sessions(duplex_plan([(0,), (1,)], sessions=1))
    sessions.open("a", 0)
    assert sessions.open("b", 0) == SessionRefusal(
        message="duplex_session_capacity_exhausted: limit=1"
    )


def test_equal_groups_take_turns() -> None:
    """The first after the last pick, in a circle, also when sessions come and go."""
    sessions = Sessions(duplex_plan([(0,), (1,), (2,)]))
    seen = []
    for number in range(7):
        seen.append(group_of(sessions.open(f"{number}", 0)))
        sessions.rolled_back(f"{number}")
    assert seen == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("sessions", "frontends", "groups", "cap", "budgets"),
    [
        (64, 4, 8, 8, [16, 16, 16, 16]),
        (5, 3, 3, 8, [2, 2, 1]),
        (2, 4, 4, 8, [1, 1, 0, 0]),
        (100, 2, 2, 8, [8, 8]),
        (100, 1, 2, 8, [100]),
    ],
)
def test_budgets_of_frontends(
    sessions: int, frontends: int, groups: int, cap: int, budgets: list[int]
) -> None:
    """No frontend admits more than its part, and one alone admits as if there were no parts."""
    plan = duplex_plan(
        [(number,) for number in range(groups)], sessions=sessions, cap=cap, frontends=frontends
    )
    found = [Sessions(plan, frontend) for frontend in range(frontends)]
    assert [one.limit for one in found] == budgets
    for one in found:
        held = [one.open(f"{number}", 0) for number in range(sessions + 1)]
        placed = [answer for answer in held if isinstance(answer, Placed)]
        assert len(placed) == min(one.limit, cap * groups)


def test_a_frontend_places_in_its_own_groups() -> None:
    """Group `g` belongs to frontend `g % K`."""
    plan = duplex_plan([(0,), (1,), (2,), (3,)], frontends=2)
    own = Sessions(plan, 1)
    assert {group_of(own.open(f"{number}", 0)) for number in range(4)} == {1, 3}


def test_a_frontend_without_budget_says_so_and_may_be_tried_again() -> None:
    """It holds nobody, and refuses like any other."""
    refusal = Sessions(duplex_plan([(0,)] * 1, sessions=0), 0).open("a", 0)
    assert isinstance(refusal, SessionRefusal)
    assert refusal.retryable
    assert refusal.message == "duplex_session_capacity_exhausted: limit=0"


def test_legacy_sessions_are_counted_and_take_no_group() -> None:
    """Only the number of all sessions is bounded."""
    sessions = Sessions(duplex_plan([], sessions=1, cap=None))
    assert sessions.open("a", 0) == Placed(group=None, replicas={})
    assert isinstance(sessions.open("b", 0), SessionRefusal)
    assert sessions.died(0, 0) == ()


def test_a_legacy_session_dies_with_the_replicas_that_it_was_given() -> None:
    """It holds no place of theirs, so they are not counted."""
    sessions = Sessions(duplex_plan([], cap=None))
    for name in "ab":
        sessions.open(name, 0)
    sessions.seated("a", {0: 1, 1: 0})
    sessions.seated("b", {0: 0, 1: 0})
    assert sessions.died(0, 1) == ("a",)
    assert sessions.died(1, 0) == ("b",)
    assert sessions.reserved == {}


def test_a_replica_that_is_held_keeps_its_sessions_and_takes_no_more() -> None:
    """Until it takes some again."""
    sessions = Sessions(duplex_plan([(0,)]))
    sessions.open("a", 0)
    sessions.held(0, 0)
    assert isinstance(sessions.open("b", 0), SessionRefusal)
    assert sessions.states == {"a": SessionState.OPENING}
    sessions.joined(0, 0)
    assert group_of(sessions.open("b", 0)) == 0


def test_what_is_computed_for_a_session_keeps_it_from_being_idle() -> None:
    """But not from ending when its client has left it."""
    sessions = Sessions(duplex_plan([(0,)]))
    for name in ("busy", "left"):
        sessions.open(name, 0)
        sessions.opened(name, 0)
        sessions.busy(name, 290)
    sessions.busy("nobody", 290)
    sessions.disconnected("left", 290)
    assert sessions.reap(320) == ("left",)
    assert sessions.reap(589) == ()
    assert sessions.reap(590) == ("busy",)


def test_a_closing_session_holds_its_place() -> None:
    """Until every stage has cleaned up; who cleans up twice frees nothing twice."""
    sessions = Sessions(duplex_plan([(0,)], cap=1))
    sessions.open("a", 0)
    assert sessions.opened("a", 0)
    assert not sessions.opened("a", 0)
    assert sessions.close("a")
    assert not sessions.close("a")
    assert sessions.closing == ("a",)
    assert isinstance(sessions.open("b", 0), SessionRefusal)
    sessions.cleaned("a")
    sessions.cleaned("a")
    assert group_of(sessions.open("b", 0)) == 0


def test_an_opening_that_fails_is_rolled_back_once() -> None:
    """Also when a replica died in between: then its place is free after the cleaning up."""
    sessions = Sessions(duplex_plan([(0, 0)], cap=1))
    sessions.open("a", 0)
    sessions.rolled_back("a")
    sessions.rolled_back("a")
    assert set(sessions.reserved.values()) == {0}
    sessions.open("a", 0)
    assert sessions.died(1, 0) == ("a",)
    sessions.rolled_back("a")
    assert not sessions.opened("a", 0)
    assert set(sessions.reserved.values()) == {1}
    sessions.cleaned("a")
    assert set(sessions.reserved.values()) == {0}


def test_a_death_closes_all_sessions_of_the_replica() -> None:
    """Idle ones too; groups with it take nobody until it is there again, others go on."""
    sessions = Sessions(duplex_plan([(0, 0), (1, 1)]))
    for name in "abc":
        sessions.open(name, 0)
        sessions.opened(name, 0)
    assert sessions.died(1, 0) == ("a", "c")
    assert sessions.states == {
        "a": SessionState.CLOSING,
        "b": SessionState.OPEN,
        "c": SessionState.CLOSING,
    }
    assert sessions.died(1, 0) == ()
    assert group_of(sessions.open("d", 0)) == 1
    assert isinstance(sessions.open("e", 0), SessionRefusal)
    for name in "ac":
        sessions.cleaned(name)
    assert isinstance(sessions.open("e", 0), SessionRefusal)
    sessions.joined(1, 0)
    assert group_of(sessions.open("e", 0)) == 0


def test_silent_and_lonely_sessions_are_closed() -> None:
    """After their times; a client that comes back in time keeps its session and its group."""
    sessions = Sessions(duplex_plan([(0,)], cap=9))
    for name in ("silent", "lonely", "back", "opening"):
        sessions.open(name, 0)
    for name in ("silent", "lonely", "back"):
        sessions.opened(name, 0)
    sessions.disconnected("lonely", 10)
    sessions.disconnected("back", 10)
    sessions.heard("back", 39)
    sessions.heard("nobody", 39)
    sessions.disconnected("nobody", 39)
    assert sessions.reap(39) == ()
    assert sessions.reap(40) == ("lonely",)
    assert sessions.reap(300) == ("silent",)
    assert sessions.reap(339) == ("back",)
    assert sessions.states["opening"] is SessionState.OPENING


class AnySessions(RuleBasedStateMachine):
    """Any order of events against a plain account of who holds what."""

    @initialize(
        groups=st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=4, unique=True
        ),
        cap=st.integers(1, 2),
        most=st.integers(0, 6),
    )
    def begin(self, groups: list[tuple[int, int]], cap: int, most: int) -> None:
        """Make the sessions and their account."""
        self.groups, self.cap, self.most = groups, cap, most
        self.sessions = Sessions(duplex_plan(groups, sessions=most, cap=cap))
        self.held: dict[str, int] = {}
        self.gone: set[tuple[int, int]] = set()
        self.number = 0

    def load(self, stage: int, replica: int) -> int:
        """How many sessions hold a replica."""
        return sum(self.groups[group][stage] == replica for group in self.held.values())

    @rule()
    def open(self) -> None:
        """A session opens on a group with room, and is refused only when there is none."""
        self.number += 1
        answer = self.sessions.open(f"{self.number}", 0)
        free = [
            number
            for number, group in enumerate(self.groups)
            if all(
                place not in self.gone and self.load(*place) < self.cap
                for place in enumerate(group)
            )
        ]
        if isinstance(answer, SessionRefusal):
            assert not free or len(self.held) == self.most
            return
        assert answer.group in free
        least = min(max(self.load(*place) for place in enumerate(self.groups[one])) for one in free)
        taken = self.groups[answer.group]
        assert max(self.load(*place) for place in enumerate(taken)) == least
        self.held[f"{self.number}"] = answer.group

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        what=st.sampled_from(["opened", "rolled_back", "close", "cleaned", "cleaned again"]),
    )
    def goes_on(self, data: st.DataObject, what: str) -> None:
        """Something happens to a session, possibly what cannot happen to it now."""
        name = data.draw(st.sampled_from(sorted(self.held)))
        state = self.sessions.states[name]
        match what:
            case "opened":
                assert self.sessions.opened(name, 0) == (state is SessionState.OPENING)
            case "close":
                assert self.sessions.close(name) == (state is not SessionState.CLOSING)
            case "rolled_back":
                self.sessions.rolled_back(name)
                if state is SessionState.OPENING:
                    del self.held[name]
            case _:
                self.sessions.cleaned(name)
                self.sessions.cleaned(name)
                if state is SessionState.CLOSING:
                    del self.held[name]

    @rule(stage=st.integers(0, 1), replica=st.integers(0, 2), comes=st.booleans())
    def replica(self, stage: int, replica: int, *, comes: bool) -> None:
        """A replica dies or comes back."""
        if comes:
            self.sessions.joined(stage, replica)
            self.gone.discard((stage, replica))
            return
        before = self.sessions.states
        lost = self.sessions.died(stage, replica)
        self.gone.add((stage, replica))
        on_it = {name for name, group in self.held.items() if self.groups[group][stage] == replica}
        assert set(lost) == {name for name in on_it if before[name] is not SessionState.CLOSING}

    @invariant()
    def places_are_exact(self) -> None:
        """Every session holds one place of each of its replicas, and none is overfull."""
        assert set(self.sessions.states) == set(self.held)
        assert len(self.held) <= self.most
        for place, count in self.sessions.reserved.items():
            assert count == self.load(*place) <= self.cap


TestSessions = AnySessions.TestCase
