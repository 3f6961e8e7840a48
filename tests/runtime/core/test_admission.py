"""Who is taken on, who is sent, and who waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stagemesh.runtime.core.admission import Admission, Deadlines, Refusal


def test_as_many_are_taken_on_as_there_are_slots_and_places() -> None:
    """One more is refused, with the time after which one is likely to be done."""
    admission = Admission(queue_limit=1)
    admission.join(0, slots=2)
    assert [admission.admit(name) for name in "abc"] == [None, None, None]
    for name in "ab":
        admission.place(name, 0, now=0)
    admission.served("a", now=4)
    assert admission.admit("d") == Refusal(in_flight=3, limit=3, retry_after_s=0.8)
    admission.gone("a")
    assert admission.admit("d") is None


def test_without_a_limit_everybody_is_taken_on() -> None:
    """However many there are."""
    admission = Admission()
    assert [admission.admit(f"{number}") for number in range(50)] == [None] * 50
    assert (admission.limit, admission.in_flight) == (None, 50)


def test_a_replica_is_sent_what_its_window_holds() -> None:
    """The others wait in order, and go one by one."""
    admission = Admission()
    admission.join(0, slots=1, window=2)
    for name in "abcd":
        admission.admit(name)
    assert [admission.place(name, 0, now=0) for name in "abcd"] == [True, True, False, False]
    assert (admission.sent(0), admission.waiting(0)) == (2, ("c", "d"))
    assert admission.served("d", now=1) == ()
    assert admission.served("a", now=1) == ("c",)
    assert admission.served("a", now=1) == ()
    assert (admission.sent(7), admission.waiting(7)) == (0, ())


def test_who_waited_for_a_lost_replica_needs_another() -> None:
    """A replica that retires finishes what it was sent, and its slots count no more."""
    admission = Admission(queue_limit=5)
    admission.join(0, slots=1, window=1)
    admission.join(1, slots=1, window=1)
    for name in "abc":
        admission.admit(name)
        admission.place(name, 0, now=0)
    assert admission.limit == 7
    admission.retire(0)
    assert admission.limit == 6
    assert admission.unqueue(0) == ("b", "c")
    assert admission.place("b", 1, now=0)
    assert not admission.place("c", 1, now=0)
    assert admission.served("a", now=1) == ()
    assert admission.leave(0) == ()
    assert admission.leave(1) == ("c",)
    admission.retire(1)
    assert admission.leave(1) == admission.unqueue(1) == ()
    assert admission.served("b", now=1) == ()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0, 9), st.sampled_from(["set", "clear", "due"]))
    )
)
def test_deadlines_are_told_once_and_in_order(events: list[tuple[str, float, str]]) -> None:
    """Whatever is set anew or cleared in between."""
    deadlines, account = Deadlines(), dict[str, float]()
    for name, at, what in events:
        match what:
            case "set":
                deadlines.set(name, at)
                account[name] = at
            case "clear":
                deadlines.clear(name)
                account.pop(name, None)
            case _:
                due = deadlines.due(at)
                assert sorted(due) == sorted(one for one, end in account.items() if end <= at)
                assert [account[one] for one in due] == sorted(account[one] for one in due)
                for one in due:
                    del account[one]
        assert deadlines.next == min(account.values(), default=None)


class AnyAdmission(RuleBasedStateMachine):
    """Any order of events against a plain account of queues."""

    @initialize(limit=st.none() | st.integers(0, 3))
    def begin(self, limit: int | None) -> None:
        """Nobody is there."""
        self.admission = Admission(limit)
        self.limit = limit
        self.windows: dict[int, int] = {}
        self.sent: dict[int, list[str]] = {}
        self.queues: dict[int, list[str]] = {}
        self.admitted: set[str] = set()
        self.number = 0

    def put(self, name: str, replica: int) -> None:
        """Bind a request."""
        goes = self.admission.place(name, replica, now=self.number)
        assert goes == (
            not self.queues[replica] and len(self.sent[replica]) < self.windows[replica]
        )
        (self.sent if goes else self.queues)[replica].append(name)

    @rule(replica=st.integers(0, 2), slots=st.integers(1, 2))
    def join(self, replica: int, slots: int) -> None:
        """A replica comes."""
        if replica not in self.windows:
            self.admission.join(replica, slots, slots)
            self.windows[replica] = slots
            self.sent[replica], self.queues[replica] = [], []

    @precondition(lambda self: self.windows)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        """A request comes."""
        self.number += 1
        name = f"{self.number}"
        most = None if self.limit is None else self.limit + sum(self.windows.values())
        refusal = self.admission.admit(name)
        assert (refusal is not None) == (most is not None and len(self.admitted) >= most)
        if refusal is None:
            self.admitted.add(name)
            self.put(name, data.draw(st.sampled_from(sorted(self.windows))))

    @precondition(lambda self: self.admitted)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        """A request is served, or leaves while it waits."""
        name = data.draw(st.sampled_from(sorted(self.admitted)))
        going: list[str] = []
        for replica, sent in self.sent.items():
            if name in sent:
                sent.remove(name)
                going = self.queues[replica][:1]
                self.queues[replica] = self.queues[replica][1:]
                sent.extend(going)
            elif name in self.queues[replica]:
                self.queues[replica].remove(name)
        assert list(self.admission.served(name, now=self.number)) == going
        self.admission.gone(name)
        self.admitted.remove(name)

    @precondition(lambda self: len(self.windows) > 1)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        """A replica dies; who waited for it goes to another."""
        replica = data.draw(st.sampled_from(sorted(self.windows)))
        waited = self.queues.pop(replica)
        assert list(self.admission.leave(replica)) == waited
        del self.windows[replica], self.sent[replica]
        for name in waited:
            self.put(name, min(self.windows))

    @invariant()
    def queues_are_exact(self) -> None:
        """In order, and no window is overfull."""
        assert self.admission.in_flight == len(self.admitted)
        for replica, window in self.windows.items():
            assert self.admission.sent(replica) == len(self.sent[replica]) <= window
            assert list(self.admission.waiting(replica)) == self.queues[replica]


TestAdmission = AnyAdmission.TestCase
