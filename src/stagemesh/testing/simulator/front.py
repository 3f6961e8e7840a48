"""The simulated caller: a shell around the dispatcher, and users who read, leave, come again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from stagemesh.errors import ClosedError, StagemeshError
from stagemesh.runtime.core.actions import Action, Begin, Cancel, Ended, Enter, Settled
from stagemesh.runtime.core.credits import Grant, Inflow, StreamKey
from stagemesh.runtime.core.membership import Health, Membership
from stagemesh.testing.simulator.ledger import UserAccount, ViolationError
from stagemesh.testing.simulator.process import Chunk, Link, Process
from stagemesh.testing.simulator.scenario import FOREVER, User
from stagemesh.testing.simulator.setting import Setting


class _Live:
    """A request that was taken on, and who made it."""

    __slots__ = (
        "account", "buffer", "cancelled", "key", "owing", "parent", "processes", "reading", "turns",
        "user",
    )  # fmt: skip

    def __init__(self, user: User, account: UserAccount, parent: _Live | None) -> None:
        self.user = user
        self.account = account
        self.parent = parent
        self.key: StreamKey | None = None
        self.processes: dict[int, Process] = {}
        self.turns: dict[int, int] = {}
        self.owing: dict[int, tuple[int, int]] = {}
        self.cancelled: set[int] = set()
        self.buffer: deque[tuple[Link, StreamKey, int]] = deque()
        self.reading = False


class Front:
    """All users, and what they are owed."""

    def __init__(self, world: Setting, members: Mapping[int, Membership]) -> None:
        """Nobody has asked for anything; `members` are the replicas of every stage."""
        self.world = world
        self._members = members
        self.processes: dict[tuple[int, int], Process] = {}
        scenario = world.scenario
        self.dispatcher = world.rules.dispatcher(
            scenario.stages, queue_limit=scenario.queue_limit, parts=world.rules.parts
        )
        self.live: dict[str, _Live] = {}
        self.inflows: dict[Process, Inflow] = {}
        self.ended: list[UserAccount] = []
        self.num_refused = 0
        self.changed = False
        self._again: dict[str, list[User]] = {}
        self._finals = tuple(shape.stage for shape in scenario.stages if shape.is_final)
        self.gate = next(shape.stage for shape in scenario.stages if shape.is_entry)

    # --- users ---------------------------------------------------------------------------------

    def ask(self, user: User) -> None:
        """A user asks for something; whose name is in use waits until it is not."""
        self.changed = True
        name, now = user.ask.name, self.world.clock.now
        if name in self.live:
            self._again.setdefault(name, []).append(user)
            return
        try:
            actions = self.dispatcher.open(user.ask, now)
        except StagemeshError as error:
            self.world.say("refused %s: %s", name, error)
            self.num_refused += 1
            return
        limit = self._limit()
        account = UserAccount(name, self._finals, user.chunks, now + (user.ask.timeout_s or 0))
        self.live[name] = _Live(user, account, self.live.get(user.ask.parent or ""))
        if limit is not None and len(self.live) > limit:
            raise ViolationError(f"{len(self.live)} requests were taken on, of {limit}")
        self.world.say("opened %s", name)
        self.set_timer()
        self.act(actions)

    def _limit(self) -> int | None:
        """Most requests that may be taken on now."""
        scenario, gate = self.world.scenario, self.gate
        if scenario.queue_limit is None:
            return None
        states = self._members[gate].states.values()
        num_serving = sum(state is Health.SERVING for state in states)
        return scenario.queue_limit + scenario.slots[gate] * num_serving

    def leave(self, choice: int) -> None:
        """A user leaves."""
        names = list(self.live)
        if names:
            name = names[choice % len(names)]
            self.world.say("left %s", name)
            now = self.world.clock.now
            self.act(self.dispatcher.leave(name, ClosedError("it was left"), now))

    def set_timer(self) -> None:
        """Look again at the next deadline."""
        at = self.dispatcher.next_deadline
        if at is not None:
            self.world.clock.at(int(at), self.tick)

    def tick(self) -> None:
        """A deadline may have come."""
        self.act(self.dispatcher.tick(self.world.clock.now))
        if self.live:
            at = self.dispatcher.next_deadline
            if at is not None and at > self.world.clock.now:
                self.world.clock.at(int(at), self.tick)

    def read(self, name: str, live: _Live) -> None:
        """A user reads what has come."""
        live.reading = False
        if self.live.get(name) is live and live.buffer and not live.account.ended:
            self._read_one(live)
            self._start_reading(name, live)

    # --- what processes say --------------------------------------------------------------------

    def output(self, link: Link, key: StreamKey, chunk: Chunk) -> None:
        """A final stage has put something out."""
        process, (seq, size, last) = link.source, chunk
        machine = self.dispatcher.find(*key)
        inflow = self.inflows.get(process)
        if inflow is None or machine is None or not machine.running:
            link.give_back(Grant(stream=key, size=size))
            return
        inflow.received(key, seq, size, last=last)
        fault = self.dispatcher.output(*key, process.stage, seq, last=last)
        if fault is not None:
            raise ViolationError(f"{process}: {fault}")
        live = self.live[key[0]]
        live.buffer.append((link, key, seq))
        self._start_reading(key[0], live)

    def finished(self, process: Process, key: StreamKey) -> None:
        """A stage has finished."""
        self.world.say("%s finished %s", process, key)
        self._let_go(process, key)
        now = self.world.clock.now
        self.act(self.dispatcher.finished(*key, process.stage, now))

    def failed(self, process: Process, key: StreamKey, told: str) -> None:
        """A stage has failed a request, or dropped it."""
        self.world.say("%s of %s: %s", process, key, told)
        self._let_go(process, key)
        now = self.world.clock.now
        self.act(self.dispatcher.failed(*key, process.stage, told, now))

    def whole(self, process: Process, key: StreamKey) -> None:
        """A stage has something whole, and asks whom it is for."""
        self.world.say("%s has all of %s", process, key)
        self.act(self.dispatcher.whole(*key, process.stage, self.world.clock.now))

    def gone(self, process: Process) -> None:
        """A process is known to have died: what it held is held no more."""
        for live in self.live.values():
            if live.processes.get(process.stage) is process:
                live.owing.pop(process.stage, None)

    def _let_go(self, process: Process, key: StreamKey) -> None:
        live = self.live.get(key[0])
        if live is not None and live.key == key and live.processes.get(process.stage) is process:
            live.owing.pop(process.stage, None)

    # --- what is to be done --------------------------------------------------------------------

    def act(self, actions: Iterable[Action]) -> None:
        """Carry out what the dispatcher says, in order."""
        self.changed = True
        for action in actions:
            match action:
                case Begin():
                    self._begin(action)
                case Enter():
                    self._enter(action)
                case Cancel():
                    self._cancel(action)
                case Ended():
                    self._end(action)
                case Settled():
                    self._settle(action.name)

    def _begin(self, begin: Begin) -> None:
        live, world = self.live[begin.name], self.world
        if live.key is not None:
            raise ViolationError(f"`{begin.name}` began twice")
        key = live.key = (begin.name, begin.epoch)
        world.say("began %s on %s", key, begin.route)
        if set(begin.route) != world.scenario.first:
            raise ViolationError(f"{key} began on {begin.route}, too many or too few")
        self._tell(live, begin.route, begin.epoch)
        entry = live.processes[self.gate]
        num_sent = sum(
            one.processes[self.gate] is entry
            for one in self.live.values()
            if self.gate in one.owing
        )
        if num_sent > world.scenario.window:
            raise ViolationError(f"{entry} was sent {num_sent} requests")

    def _enter(self, enter: Enter) -> None:
        live = self.live[enter.name]
        self.world.say("%s goes on to %s", live.key, enter.route)
        if live.account.ended:
            raise ViolationError(f"{live.key} goes on after its end")
        told = [stage for stage in live.processes if stage not in enter.route]
        self._tell(live, enter.route, enter.turn)
        for stage in told:
            targets = self._targets(live, stage, enter.route)
            if targets:
                process = live.processes[stage]
                process.from_caller.send(process.onward, live.key, targets)

    def _tell(self, live: _Live, route: Mapping[int, int], turn: int) -> None:
        """Tell these replicas, consumers first."""
        for stage, replica in route.items():
            process = self.processes.get((stage, replica))
            if process is None:
                raise ViolationError(f"{live.key} goes to {stage}/{replica}, which is gone")
            if stage in live.processes:
                raise ViolationError(f"{live.key} comes to stage {stage} twice")
            live.processes[stage] = process
            live.turns[stage] = turn
            live.owing[stage] = (stage, replica)
        self._check_parent(live)
        self._check_units(live)
        for stage in sorted(route, reverse=True):
            process = live.processes[stage]
            targets = {**self._targets(live, stage, live.processes), None: 0}
            process.from_caller.send(process.submit, live.key, turn, live.user.chunks, targets)

    def _targets(self, live: _Live, stage: int, among: Iterable[int]) -> dict[Process | None, int]:
        return {
            live.processes[target]: live.turns[target]
            for source, target in self.world.scenario.edges
            if source == stage and target in among
        }

    def _check_parent(self, live: _Live) -> None:
        parent = live.parent  # whoever has its name now may be another
        if parent is None or self.live.get(parent.user.ask.name) is not parent:
            return
        both = parent.processes.keys() & live.processes
        if any(parent.processes[stage] is not live.processes[stage] for stage in both):
            raise ViolationError(f"{live.key} is not where its parent {parent.key} is")

    def _check_units(self, live: _Live) -> None:
        for stage, process in live.processes.items():
            mates = self.world.scenario.mates(stage)
            here = (live.processes[mate] for mate in mates if mate in live.processes)
            if any(mate.replica != process.replica for mate in here):
                raise ViolationError(f"{live.key} is spread over processes that share stages")

    def _cancel(self, cancel: Cancel) -> None:
        live = self.live[cancel.name]
        process = live.processes[cancel.stage]
        if cancel.stage in live.cancelled:
            raise ViolationError(f"{live.key} was cancelled twice at {process}")
        live.cancelled.add(cancel.stage)
        assert live.key is not None, "what has not begun is cancelled nowhere"
        process.from_caller.send(process.cancel, live.key)

    def _end(self, ended: Ended) -> None:
        live = self.live[ended.name]
        self.world.say("ended %s: %s", live.key or ended.name, ended.error)
        if ended.error is None:
            while live.buffer:
                self._read_one(live)
        live.account.end(ended.error, self.world.clock.now)
        self.ended.append(live.account)
        live.buffer.clear()
        self._drop(live)
        if live.owing and ended.error is None:
            raise ViolationError(f"{live.key} ended well while {list(live.owing)} hold it")

    def _settle(self, name: str) -> None:
        live = self.live.pop(name)
        if live.owing:
            raise ViolationError(f"{live.key} is settled while {list(live.owing)} hold it")
        if not live.account.ended:
            raise ViolationError(f"{live.key} is settled before its end")
        again = self._again.pop(name, [])
        for user in again:
            self.world.clock.at(self.world.clock.now + 1, self.ask, (user,))

    def _read_one(self, live: _Live) -> None:
        link, key, seq = live.buffer.popleft()
        live.account.output(link.source.stage, key[0], seq)
        inflow = self.inflows.get(link.source)
        grant = None if inflow is None else inflow.consumed(key, seq)
        if grant is not None:
            link.give_back(grant)

    def _start_reading(self, name: str, live: _Live) -> None:
        if live.buffer and not live.reading and live.user.pace != FOREVER:
            live.reading = True
            self.world.clock.soon(live.user.pace, self.read, (name, live))

    def _drop(self, live: _Live) -> None:
        """Give back what nobody reads any more."""
        if live.key is None:
            return
        for stage in self._finals:
            process = live.processes.get(stage)
            inflow = None if process is None else self.inflows.get(process)
            if process is not None and inflow is not None:
                for grant in inflow.drop(live.key):
                    process.links[None].give_back(grant)

    # --- the rules -----------------------------------------------------------------------------

    def check(self) -> None:
        """Counts are what they should be; they can only change when the dispatcher was told."""
        self.changed = False
        held: dict[tuple[int, int], int] = {}
        for name, live in self.live.items():
            cost = live.user.ask.cost
            for place in self._places(name, live):
                held[place] = held.get(place, 0) + cost
        for stage, bindings in self.dispatcher.bindings.items():
            for replica, backlog in bindings.router.backlog.items():
                if backlog and backlog != (holds := held.pop((stage, replica), 0)):
                    raise ViolationError(f"{stage}/{replica} counts {backlog}, and holds {holds}")
        if held:
            raise ViolationError(f"nothing is counted of {held}")

    def _places(self, name: str, live: _Live) -> Iterable[tuple[int, int]]:
        """Where a request counts: with everybody who holds it, or where it is to go and waits."""
        route = self.dispatcher.route(name)
        if live.key is not None:
            to_come = route.keys() - live.processes  # where its family is already
            if to_come and live.account.ended:
                raise ViolationError(f"{live.key} has ended, and is still to come to {to_come}")
            return [*live.owing.values(), *((stage, route[stage]) for stage in to_come)]
        replica = route.get(self.gate)
        if (self.gate, replica) not in self.processes:
            raise ViolationError(f"`{name}` waits for {self.gate}/{replica}, which is gone")
        return route.items()
