"""What the next step computes: continuous batching over a bounded number of blocks.

Requests are served strictly in the order they came. A step takes the first `max_num_seqs` that can
go on and gives each at least one token; what the budget has left goes to long prompts in the same
order, in chunks. Whoever needs a block that is not free takes it from requests that cannot go on
(paused, or waiting for input), then from those that came later, the latest first; they lose their
blocks and are computed again when there is room. So the oldest request always goes on, and nothing
is ever stuck.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stagemesh.engines.ar.blocks import BlockPool
from stagemesh.spec.frozen import frozen


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """The tokens of one request, counted; changes as it goes."""

    request_id: str
    """The request."""
    num_tokens: int = 0
    """Tokens known so far, of prompt and answer."""
    num_computed: int = 0
    """Tokens whose keys and values are in the cache."""
    complete: bool = False
    """Whether the prompt is whole. Until then its last token waits, since it yields the answer."""
    paused: bool = False
    """Whether it must wait for `resume`."""
    blocks: list[int] = field(default_factory=list)
    """Its blocks, in the order of its tokens."""

    @property
    def num_missing(self) -> int:
        """Tokens that could be computed now."""
        return max(0, self.num_tokens - (0 if self.complete else 1) - self.num_computed)

    @property
    def can_go_on(self) -> bool:
        """Whether a step could serve it."""
        return not self.paused and self.num_missing > 0


@frozen
class Chunk:
    """The tokens of one sequence that a step computes."""

    sequence: Sequence
    """Whose they are."""
    start: int
    """Position of the first."""
    count: int
    """How many."""

    @property
    def yields_token(self) -> bool:
        """Whether the step gives the sequence its next token."""
        sequence = self.sequence
        return sequence.complete and self.start + self.count == sequence.num_tokens


class Scheduler:
    """Holds the live sequences and the blocks between them."""

    def __init__(
        self, pool: BlockPool, *, block_size: int, max_num_seqs: int, max_num_batched_tokens: int
    ) -> None:
        """The pool must hold the longest sequence that is ever added."""
        self._pool = pool
        self._block_size = block_size
        self._max_num_seqs = max_num_seqs
        self._budget = max_num_batched_tokens
        self._sequences: dict[str, Sequence] = {}
        self.num_preemptions = 0
        """Times that a sequence lost its blocks."""

    def add(self, sequence: Sequence) -> None:
        """Take a sequence in, behind all others."""
        self._sequences[sequence.request_id] = sequence

    def remove(self, request_id: str) -> None:
        """Forget a sequence and free its blocks."""
        self._pool.release(self._sequences.pop(request_id).blocks)

    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return any(sequence.can_go_on for sequence in self._sequences.values())

    def schedule(self) -> list[Chunk]:
        """Choose what one step computes and give it the blocks for that."""
        most = min(self._max_num_seqs, self._budget)
        chosen = [one for one in self._sequences.values() if one.can_go_on][:most]
        budget, chunks = self._budget, list[Chunk]()
        for index, sequence in enumerate(chosen):
            count = min(sequence.num_missing, budget - (len(chosen) - index - 1))
            # new ones leave those before them room to grow, or they would soon be thrown out again
            spare = 0 if sequence.blocks else index
            if not self._reserve(sequence, count, spare):
                continue
            chunks.append(Chunk(sequence=sequence, start=sequence.num_computed, count=count))
            budget -= count
        return chunks

    def computed(self, chunk: Chunk) -> None:
        """Note that a chunk's keys and values are in the cache now."""
        chunk.sequence.num_computed += chunk.count

    def _reserve(self, sequence: Sequence, count: int, spare: int) -> bool:
        # a new sequence is let in with all that it needs so far, not just with its first chunk
        wanted = sequence.num_computed + (count if sequence.blocks else sequence.num_missing)
        needed = -(-wanted // self._block_size) - len(sequence.blocks)
        if needed > 0 and not self._make_room(sequence, needed + spare):
            return False
        self._pool.grow(sequence.blocks, max(0, needed))
        return True

    def _make_room(self, sequence: Sequence, count: int) -> bool:
        """Free blocks of others until `count` are free; take none if even that would not do."""
        if self._pool.num_free >= count:
            return True
        victims = self._victims(sequence)
        if self._pool.num_free + sum(len(victim.blocks) for victim in victims) < count:
            return False
        while self._pool.num_free < count:
            victim = victims.pop()
            self._pool.release(victim.blocks)
            victim.num_computed = 0
            self.num_preemptions += 1
        return True

    def _victims(self, sequence: Sequence) -> list[Sequence]:
        """Whom `sequence` may take blocks from, the first to lose them last."""
        order = list(self._sequences.values())
        later = order[order.index(sequence) + 1 :]
        idle = [one for one in order if not one.can_go_on and one is not sequence]
        return [one for one in (*(one for one in later if one.can_go_on), *idle) if one.blocks]
