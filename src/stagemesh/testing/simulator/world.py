"""One history: a scenario played to its end, with every rule checked after every event."""

from __future__ import annotations

from typing import Final

from stagemesh.errors import StagemeshError
from stagemesh.runtime.core.membership import (
    Change,
    Health,
    Joined,
    Left,
    Restart,
    RestartPolicy,
    Retired,
)
from stagemesh.spec.frozen import frozen
from stagemesh.testing.simulator.front import Front
from stagemesh.testing.simulator.ledger import ViolationError
from stagemesh.testing.simulator.process import Link, Process
from stagemesh.testing.simulator.scenario import Fault
from stagemesh.testing.simulator.setting import Rules, Setting

_POLICY: Final = RestartPolicy(most=2, window_s=500, first_delay_s=4, longest_delay_s=30)
_NOTICE: Final = 40
"""Most ticks until the supervisor notices a death that no stream has told of."""
_MOST_EVENTS: Final = 20_000


class World:
    """Everything that there is in one history."""

    def __init__(self, seed: int, rules: Rules, *, keep: bool = False) -> None:
        """Draw the scenario and start every replica; `keep` writes the history down."""
        self.setting: Final = Setting(seed, rules, keep=keep)
        self.clock: Final = self.setting.clock
        self.scenario: Final = self.setting.scenario
        self.rules: Final = rules
        self.everyone: list[Process] = []
        self.draining: list[Process] = []
        stages = self.scenario.stages
        self.members = {shape.stage: rules.membership(_POLICY) for shape in stages}
        self.front: Final = Front(self.setting, self.members)
        for stage, count in enumerate(self.scenario.replicas):
            for replica in range(count):
                self.start(stage, replica, 0)

    def run(self) -> None:
        """Play to the end; raises `ViolationError` when a rule is broken."""
        for user in self.scenario.users:
            self.clock.at(user.at, self.front.ask, (user,))
        front, setting, draining = self.front, self.setting, self.draining
        faults = list(reversed(self.scenario.faults))
        step = self.clock.step
        for number in range(1, _MOST_EVENTS):
            if not step():
                break
            setting.events = number
            while faults and faults[-1].event <= number:
                self._meet(faults.pop())
            if draining:
                self._stop_drained()
            if front.changed:
                front.check()
        else:
            raise ViolationError("it does not come to an end")
        self._check_end()

    # --- replicas ------------------------------------------------------------------------------

    def start(self, stage: int, replica: int, incarnation: int) -> None:
        """A process is ready; its neighbours know it before the caller does."""
        process = Process(self.setting, self.front, (stage, replica), incarnation)
        for source, target in self.scenario.edges:
            for other in list(self.front.processes.values()):
                if other.stage == target and source == stage:
                    self._connect(process, other)
                elif other.stage == source and target == stage:
                    self._connect(other, process)
        self.front.processes[stage, replica] = process
        self.everyone.append(process)
        self.front.inflows[process] = self.rules.inflow()
        self.setting.say("started %s", process)
        self._change(stage, self.members[stage].ready(replica, incarnation))

    def lost(self, process: Process) -> None:
        """The end of a process is noticed, perhaps not for the first time."""
        members = self.members[process.stage]
        is_news = self.front.processes.get((process.stage, process.replica)) is process
        if is_news:
            del self.front.processes[process.stage, process.replica]
            self.front.gone(process)
        changes = members.ended(process.replica, process.incarnation, self.clock.now)
        if bool(changes) != is_news:
            raise ViolationError(f"the end of {process} was told as {changes}")
        self._change(process.stage, changes)

    def kill(self, process: Process) -> None:
        """A process dies now, and all stages in it with it."""
        for mate in self._mates(process):
            if mate.alive:
                self._kill(mate)

    def _mates(self, process: Process) -> list[Process]:
        """Whatever shares a process, itself included, as far as its death was not noticed."""
        places = [(stage, process.replica) for stage in self.scenario.mates(process.stage)]
        found = [self.front.processes[place] for place in places if place in self.front.processes]
        return [process, *(mate for mate in found if mate is not process)]

    def _kill(self, process: Process) -> None:
        """What it had sent arrives, then the ends of its streams."""
        self.setting.say("killed %s", process)
        process.alive = False
        for link in process.links.values():
            if link.target is not None:
                link.wire.send(link.target.source_gone, process)
        for source, link in process.inputs.items():
            link.back.send(source.target_gone, link)
        process.to_caller.send(self.lost, process)
        self.clock.soon(_NOTICE, self.lost, (process,))

    def _connect(self, source: Process, target: Process) -> None:
        link = Link(source, target)
        source.links[target] = link
        target.inputs[source] = link
        target.inflows[source] = self.rules.inflow()
        if not target.alive:  # nobody has noticed yet, and it hears so at once
            link.back.send(source.target_gone, link)
        if not source.alive:
            link.wire.send(target.source_gone, source)

    def _change(self, stage: int, changes: list[Change]) -> None:
        dispatcher, scenario, now = self.front.dispatcher, self.scenario, self.clock.now
        for change in changes:
            self.setting.say("stage %s: %s", stage, change)
            match change:
                case Joined(replica=replica):
                    slots = scenario.slots[stage]
                    actions = dispatcher.joined(stage, replica, slots, scenario.window)
                case Left(replica=replica):
                    actions = dispatcher.left(stage, replica, f"{stage}/{replica} died", now)
                case Retired(replica=replica):
                    actions = dispatcher.retired(stage, replica, now)
                case Restart(replica=replica, incarnation=incarnation, delay_s=delay_s):
                    again = (stage, replica, incarnation)
                    self.clock.at(now + int(delay_s), self.start, again)
                    continue
            self.front.act(actions)

    def _meet(self, fault: Fault) -> None:
        """Something goes wrong."""
        alive = [process for process in self.front.processes.values() if process.alive]
        if fault.kind == "cancel":
            self.front.leave(fault.choice)
        elif fault.kind == "join":
            stage = fault.choice % len(self.scenario.stages)
            mates = self.scenario.mates(stage)
            number = max(len(self.members[mate].states) for mate in mates)
            for each in mates:
                self.start(each, number, 0)
        elif alive:
            process = alive[fault.choice % len(alive)]
            if fault.kind == "kill":
                self.kill(process)
            elif fault.kind == "fail":
                process.fail(fault.choice >> 8)
            else:
                for mate in self._mates(process):
                    if mate.alive:
                        self.draining.append(mate)
                        self._change(mate.stage, self.members[mate.stage].drain(mate.replica))

    def _stop_drained(self) -> None:
        """A process that was drained goes when nobody needs it."""
        for process in list(self.draining):
            bindings = self.front.dispatcher.bindings
            backlogs = (
                bindings[mate].router.backlog.get(process.replica, 0)
                for mate in self.scenario.mates(process.stage)
            )
            if not process.alive or not any(backlogs):
                self.draining.remove(process)
                if process.alive and process.held:
                    raise ViolationError(f"{process} is drained, and holds {process.held}")
                if process.alive:
                    self.kill(process)

    def close(self) -> None:
        """Untie the knot of references, so that all of it goes now and needs no collector."""
        for process in self.everyone:
            process.close()
        self.front.processes.clear()
        self.front.inflows.clear()
        self.front.ended.clear()

    # --- the end -------------------------------------------------------------------------------

    def _check_end(self) -> None:
        """Nothing is left of anything."""
        front = self.front
        if front.live or front.dispatcher.names:
            raise ViolationError(f"never settled: {list(front.live)}, {front.dispatcher.names}")
        if front.dispatcher.admission.in_flight:
            raise ViolationError("admission counts requests that are gone")
        for process in self.front.processes.values():
            self._check_process(process)
        if self.scenario.calm:
            bad = [account for account in front.ended if account.error is not None]
            if bad:
                raise ViolationError(f"nothing went wrong, and `{bad[0].name}`: {bad[0].error}")
        for stage, members in self.members.items():
            alive = any(one.stage == stage for one in self.front.processes.values())
            if alive != (members.health in (Health.SERVING, Health.DRAINING)):
                raise ViolationError(f"stage {stage} is {members.health} and {alive} alive")

    def _check_process(self, process: Process) -> None:
        if process.held or process.early:
            raise ViolationError(f"{process} holds {list(process.held)}, {list(process.early)}")
        for link in process.links.values():
            link.account.settled()
            if not link.flow.idle or link.flow.used:
                raise ViolationError(f"{process}: credit is missing towards {link.target}")
        inflows = [*process.inflows.values(), self.front.inflows[process]]
        if not all(inflow.idle for inflow in inflows):
            raise ViolationError(f"{process}: a stream is still known to its consumer")


@frozen
class Outcome:
    """How a history ended."""

    seed: int
    """Its seed."""
    events: int
    """How many events it had."""
    finished: int
    """Requests that finished."""
    failed: int
    """Requests that ended with an error."""
    refused: int
    """Requests that were not taken on."""
    violation: str | None
    """The rule that was broken, if one was."""
    history: tuple[str, ...]
    """What happened, where it was written down."""


def simulate(seed: int, rules: Rules | None = None, *, keep: bool = False) -> Outcome:
    """Play the history of a seed; `keep` writes it down."""
    world = World(seed, rules or Rules(), keep=keep)
    violation = None
    try:
        world.run()
    except ViolationError as broken:
        violation = str(broken)
    except (AssertionError, LookupError, ValueError, StagemeshError) as fault:
        violation = f"{type(fault).__name__}: {fault}"  # a machine refused what it must not refuse
    num_ended = len(world.front.ended)
    num_finished = sum(account.error is None for account in world.front.ended)
    world.close()
    return Outcome(
        seed=seed,
        events=world.setting.events,
        finished=num_finished,
        failed=num_ended - num_finished,
        refused=world.front.num_refused,
        violation=violation,
        history=tuple(world.setting.history),
    )
