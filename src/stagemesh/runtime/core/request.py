"""The life of one request across its stages. Pure: an event in, a list of actions out.

A request *waits* until it begins, which binds it to one replica of the first stages; it comes to
others when what they are fed with is whole. It *runs* until it has ended for its user, which
happens exactly once: all stages finished, one failed or died, it was cancelled, or its deadline
passed. It is *settled* when every stage it was bound to has said its
terminal word or is gone; until then those replicas still hold a slot for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from stagemesh.errors import StagemeshError
from stagemesh.spec.frozen import frozen


@frozen
class SendCancel:
    """Tell the replica of that stage to forget the request."""

    stage: int
    """The stage."""


@frozen
class Release:
    """The replica of that stage no longer holds the request."""

    stage: int
    """The stage."""


@frozen
class End:
    """The request is over for its user."""

    error: StagemeshError | None
    """Why it failed, or `None` when it finished."""


Action: TypeAlias = SendCancel | Release | End
"""What the shell has to do."""


class _Edge:
    """What one final stage has sent to the user."""

    __slots__ = ("next_seq", "over")

    def __init__(self) -> None:
        self.next_seq = 0
        self.over = False


class RequestMachine:
    """One request, the stages that still owe a terminal word, and the edges to its user."""

    __slots__ = ("_coming", "_edges", "_has_output", "_owing", "_running", "epoch")

    def __init__(self, finals: Iterable[int] = ()) -> None:
        """Begin waiting; `finals` are the stages that have an edge to the user."""
        self.epoch: int | None = None
        self._owing: dict[int, None] = {}
        self._coming: dict[int, None] = {}
        self._edges = {stage: _Edge() for stage in finals}
        self._running = True
        self._has_output = False

    @property
    def running(self) -> bool:
        """Whether it has not ended for its user."""
        return self._running

    @property
    def begun(self) -> bool:
        """Whether stages were told of it."""
        return self.epoch is not None

    @property
    def settled(self) -> bool:
        """Whether no replica holds it, and none will."""
        return not self._owing and not self._running

    @property
    def owing(self) -> tuple[int, ...]:
        """Stages that have not said their terminal word, in the order they were given."""
        return tuple(self._owing)

    @property
    def coming(self) -> tuple[int, ...]:
        """Stages that were not told of it yet, in the order they were given."""
        return tuple(self._coming)

    @property
    def has_output(self) -> bool:
        """Whether its user has been given anything, after which trying again would be noticed."""
        return self._has_output

    def begin(self, epoch: int, stages: Iterable[int], coming: Iterable[int] = ()) -> None:
        """It is bound to a replica of each of `stages`, and they are told of it as `epoch`.

        Those of `coming` are told later.
        """
        assert self._running, "a request that has ended does not begin"
        assert self.epoch is None, "a request begins once"
        self.epoch = epoch
        self._owing = dict.fromkeys(stages)
        self._coming = dict.fromkeys(coming)

    def enter(self, stages: Iterable[int]) -> None:
        """It is bound to a replica of each of these as well, and they are told."""
        assert self._running, "a request that has ended comes to no further stage"
        for stage in stages:
            del self._coming[stage]
            self._owing[stage] = None

    def output(self, stage: int, seq: int, *, last: bool) -> str | None:
        """A final stage has put something out; what is wrong with that, if anything is."""
        edge = self._edges[stage]
        if edge.over:
            return f"chunk `{seq}` came after the last one"
        if seq != edge.next_seq:
            return f"chunk `{seq}` came in place of `{edge.next_seq}`"
        edge.next_seq = seq + 1
        edge.over = last
        self._has_output = self._has_output or self._running
        return None

    def lacks(self, stage: int) -> bool:
        """Whether a stage that says it has finished has not sent its last chunk to the user."""
        return stage in self._edges and not self._edges[stage].over

    def finished(self, stage: int) -> list[Action]:
        """A stage has finished."""
        actions = self._settle(stage)
        if actions and self._running and not self._owing and not self._coming:
            actions.append(self._end(None))
        return actions

    def failed(self, stage: int, error: StagemeshError) -> list[Action]:
        """A stage has failed, has forgotten the request, or its replica is gone."""
        if stage in self._coming:
            return self.cancel(error)
        actions = self._settle(stage)
        return actions + self.cancel(error) if actions else []

    def cancel(self, error: StagemeshError) -> list[Action]:
        """End it now because of `error`, and cancel it wherever it is still held."""
        if not self._running:
            return []
        return [self._end(error), *(SendCancel(stage=stage) for stage in self._owing)]

    def _settle(self, stage: int) -> list[Action]:
        if stage not in self._owing:
            return []
        del self._owing[stage]
        return [Release(stage=stage)]

    def _end(self, error: StagemeshError | None) -> End:
        self._running = False
        return End(error=error)
