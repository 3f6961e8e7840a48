"""A simulated stage process: it serves, streams, forgets when told to, and may die at any time."""

from __future__ import annotations

from typing import Final, Protocol

from stagemesh.runtime.core.credits import Grant, Inflow, Outflow, StreamKey
from stagemesh.testing.simulator.clock import Wire
from stagemesh.testing.simulator.ledger import EdgeAccount, ViolationError
from stagemesh.testing.simulator.setting import Setting

_STEP: Final = 6


Chunk = tuple[int, int, bool]
"""Its number, its bytes, and whether it is the last."""


class Caller(Protocol):
    """Whom a process answers."""

    def output(self, link: Link, key: StreamKey, chunk: Chunk) -> None:
        """It has put something out."""
        ...

    def finished(self, process: Process, key: StreamKey) -> None:
        """It has finished a request."""
        ...

    def failed(self, process: Process, key: StreamKey, told: str) -> None:
        """It has failed a request, or dropped it."""
        ...

    def whole(self, process: Process, key: StreamKey) -> None:
        """It has all of a request for stages that it was not told the replicas of."""
        ...


class Link:
    """The producing end of an edge to another process, or to the caller for `None`."""

    __slots__ = (
        "account", "back", "flow", "open", "pending", "source", "target", "turns", "wire",
    )  # fmt: skip

    def __init__(self, source: Process, target: Process | None) -> None:
        """Connect both ends."""
        world = source.world
        limits = world.scenario.limits
        self.source: Final = source
        self.target: Final = target
        self.flow: Final[Outflow] = world.rules.outflow(limits)
        self.account: Final = EdgeAccount(limits)
        spread = world.scenario.spread
        self.wire: Final = source.to_caller if target is None else Wire(world.clock, spread)
        self.back: Final = Wire(world.clock, spread)
        self.pending: Final[dict[StreamKey, Chunk]] = {}
        self.turns: Final[dict[StreamKey, int]] = {}
        self.open = True

    def transmit(self, key: StreamKey, chunk: Chunk) -> None:
        """Send a chunk that has credit."""
        seq, size, last = chunk
        self.account.sent(key, seq, size, last=last)
        if self.target is None:
            self.wire.send(self.source.caller.output, self, key, chunk)
        else:
            self.wire.send(self.target.chunk, self, key, chunk, self.turns[key])

    def give_back(self, grant: Grant) -> None:
        """The consumer is done with a chunk."""
        self.back.send(self.source.granted, self, grant.stream, grant.size)


class Held:
    """One request of a process."""

    __slots__ = ("blocked", "done", "got", "key", "lacks", "links", "produced", "total")

    def __init__(self, key: StreamKey, total: int, sources: list[int], targets: set[int]) -> None:
        """It is to put out `total` outputs for `targets`, from what `sources` send."""
        self.key = key
        self.total = total
        self.links: list[Link] = []
        self.lacks = targets
        self.got: dict[int, int] = dict.fromkeys(sources, 0)
        self.produced = 0
        self.blocked = 0
        self.done = False


class Process:
    """One incarnation of one replica."""

    __slots__ = (
        "alive", "caller", "chunked", "early", "from_caller", "held", "incarnation", "inflows",
        "inputs", "last_turn", "links", "replica", "running", "sources", "stage", "stepping",
        "targets", "to_caller", "waiting", "world",
    )  # fmt: skip

    def __init__(
        self, world: Setting, caller: Caller, place: tuple[int, int], incarnation: int
    ) -> None:
        """Ready to serve at `place`, a stage and a replica; connected to `caller` alone."""
        stage, replica = place
        self.world = world
        self.caller = caller
        self.stage = stage
        self.replica = replica
        self.incarnation = incarnation
        self.alive = True
        self.chunked = world.scenario.chunked
        self.to_caller = Wire(world.clock, world.scenario.spread)
        self.from_caller = Wire(world.clock, world.scenario.spread)
        self.sources = [source for source, target in world.scenario.edges if target == stage]
        self.targets = {target for source, target in world.scenario.edges if source == stage}
        self.links: dict[Process | None, Link] = {}
        self.inputs: dict[Process, Link] = {}
        self.inflows: dict[Process, Inflow] = {}
        self.held: dict[str, Held] = {}
        self.running: dict[str, Held] = {}
        self.waiting: dict[str, Held] = {}
        self.early: dict[StreamKey, list[tuple[Link, Chunk]]] = {}
        self.last_turn = -1
        self.stepping = False
        if world.scenario.stages[stage].is_final:
            self.links[None] = Link(self, None)

    def __repr__(self) -> str:
        return f"{self.stage}/{self.replica}#{self.incarnation}"

    def close(self) -> None:
        """Let go of everything, and so of those who refer to it."""
        for process_table in (self.inputs, self.inflows, self.links):
            process_table.clear()
        for request_table in (self.held, self.running, self.waiting):
            request_table.clear()
        self.early.clear()

    # --- what comes ----------------------------------------------------------------------------

    def submit(
        self, key: StreamKey, turn: int, total: int, targets: dict[Process | None, int]
    ) -> None:
        """A request has come, and the turn of every process that it feeds, as far as known."""
        if not self.alive:
            return
        if key[0] in self.held:
            raise ViolationError(f"{self} holds `{key[0]}` already, and gets it again as {key}")
        if turn <= self.last_turn:
            raise ViolationError(f"{self} gets {key} as {turn} after {self.last_turn}")
        self.last_turn = turn
        held = self.held[key[0]] = Held(key, total, self.sources, set(self.targets))
        self._open(held, targets)
        for link, chunk in self.early.pop(key, ()):
            self._take(held, link, chunk)
        self.waiting[key[0]] = held
        self._fill()

    def onward(self, key: StreamKey, targets: dict[Process | None, int]) -> None:
        """It is said where a request goes when it is whole, which it may be."""
        held = self.held.get(key[0])
        if self.alive and held is not None and held.key == key:
            for link in self._open(held, targets):
                if held.done:
                    self._put(held, link, 0, last=True)
            self._end(held)

    def chunk(self, link: Link, key: StreamKey, chunk: Chunk, turn: int) -> None:
        """An input has come, perhaps before its request or after its end."""
        if not self.alive:
            return
        held = self.held.get(key[0])
        if held is not None and held.key == key:
            self._take(held, link, chunk)
            self._wake()
        elif turn > self.last_turn:
            self.early.setdefault(key, []).append((link, chunk))
        else:
            link.give_back(Grant(stream=key, size=chunk[1]))

    def cancel(self, key: StreamKey) -> None:
        """Forget a request; one that is not held has said its terminal word."""
        held = self.held.get(key[0])
        if self.alive and held is not None and held.key == key:
            self._release(held)
            self.to_caller.send(self.caller.failed, self, key, "it was dropped")
            self._fill()

    def fail(self, choice: int) -> None:
        """The engine fails one of its requests."""
        names = list(self.running)
        if self.alive and names:
            held = self.running[names[choice % len(names)]]
            self._release(held)
            self.to_caller.send(self.caller.failed, self, held.key, "it failed")
            self._fill()

    def granted(self, link: Link, key: StreamKey, size: int) -> None:
        """Credit has come back."""
        if self.alive and link.open:
            link.account.returned(key, size)
            self._go(link, link.flow.granted(key, size))

    def target_gone(self, link: Link) -> None:
        """A consumer is gone: what was meant for it counts as sent."""
        if not self.alive or not link.open:
            return
        link.open = False
        link.flow.reset()
        link.account.lost()
        del self.links[link.target]
        going = list(link.pending)
        self._go(link, going)

    def source_gone(self, source: Process) -> None:
        """A producer is gone, and nothing more comes from it."""
        if not self.alive or source not in self.inflows:
            return
        self.inflows.pop(source).reset()
        del self.inputs[source]
        for key in list(self.early):
            kept = [item for item in self.early[key] if item[0].source is not source]
            self.early[key] = kept
            if not kept:
                del self.early[key]

    # --- what is done --------------------------------------------------------------------------

    def step(self) -> None:
        """Put out one more output of every request that can."""
        self.stepping = False
        if not self.alive:
            return
        has_gone_on = False
        for held in list(self.running.values()):
            if self._can(held) and self.held.get(held.key[0]) is held:
                has_gone_on = True
                self._produce(held)
        if has_gone_on:
            self._wake()

    def _take(self, held: Held, link: Link, chunk: Chunk) -> None:
        seq, size, last = chunk
        inflow = self.inflows.get(link.source)
        if inflow is not None:
            inflow.received(held.key, seq, size, last=last)
            held.got[link.source.stage] += 1

    def _wake(self) -> None:
        if not self.stepping and self.running:
            self.stepping = True
            self.world.clock.soon(_STEP, self.step)

    def _fill(self) -> None:
        """Give free slots to those who wait, in the order in which they came."""
        while self.waiting and len(self.running) < self.world.scenario.slots[self.stage]:
            name = next(iter(self.waiting))
            self.running[name] = self.waiting.pop(name)
        self._wake()

    def _can(self, held: Held) -> bool:
        if held.done or held.blocked:
            return False
        needed = held.produced + 1 if self.chunked else 1
        return not held.got or min(held.got.values()) >= needed

    def _produce(self, held: Held) -> None:
        number = held.produced
        held.produced += 1
        held.done = held.produced == held.total
        chunked = self.chunked
        if chunked or held.done:
            self._consume(held, number if chunked else 0)
        for link in held.links:
            if chunked or link.target is None:
                self._put(held, link, number, last=held.done)
            elif held.done:
                self._put(held, link, 0, last=True)
        if held.done:
            del self.running[held.key[0]]  # the engine is; what it has said may still have to wait
            if held.lacks:
                self.to_caller.send(self.caller.whole, self, held.key)
            self._end(held)
            self._fill()

    def _open(self, held: Held, targets: dict[Process | None, int]) -> list[Link]:
        """Open the edges to processes that are known; of one that is gone nothing is known."""
        links = [self.links[target] for target in targets if target in self.links]
        for target, turn in targets.items():
            if target is not None:
                held.lacks.discard(target.stage)
            if target in self.links:
                self.links[target].turns[held.key] = turn
        for link in links:
            link.flow.open(held.key)
        held.links += links
        return links

    def _consume(self, held: Held, seq: int) -> None:
        for source, inflow in self.inflows.items():
            grant = inflow.consumed(held.key, seq)
            if grant is not None:
                self.inputs[source].give_back(grant)

    def _put(self, held: Held, link: Link, seq: int, *, last: bool) -> None:
        if link.open:
            chunk = (seq, 1 + self.world.clock.below(4), last)
            if link.flow.offer(held.key, chunk[1]):
                self._transmit(link, held.key, chunk)
            else:
                link.pending[held.key] = chunk
                held.blocked += 1

    def _go(self, link: Link, going: list[StreamKey]) -> None:
        """Chunks that waited go now."""
        for key in going:
            chunk = link.pending.pop(key)
            if link.open:
                self._transmit(link, key, chunk)
            held = self.held.get(key[0])
            if held is not None and held.key == key:  # else it is being released
                held.blocked -= 1
                self._end(held)
        self._wake()

    def _transmit(self, link: Link, key: StreamKey, chunk: Chunk) -> None:
        """Send a chunk that has credit; with its last one a stream makes place for others."""
        link.transmit(key, chunk)
        if chunk[2]:
            self._go(link, link.flow.close(key))

    def _end(self, held: Held) -> None:
        """A request is through when all of it was sent."""
        if held.done and not held.blocked and not held.lacks:
            self._release(held)
            self.to_caller.send(self.caller.finished, self, held.key)
            self._fill()

    def _release(self, held: Held) -> None:
        """Let go of a request, and of everything that it holds on edges."""
        name = held.key[0]
        del self.held[name]
        self.running.pop(name, None)
        self.waiting.pop(name, None)
        for source, inflow in self.inflows.items():
            for grant in inflow.drop(held.key):
                self.inputs[source].give_back(grant)
        for link in held.links:
            if link.open:
                link.pending.pop(held.key, None)
                self._go(link, link.flow.close(held.key))
