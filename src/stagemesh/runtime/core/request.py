"""The life of one request across its stages. Pure: an event in, a list of actions out.

A request *runs* until it has ended for its user, which happens exactly once: all stages finished,
one failed or died, or it was cancelled. It is *settled* when every stage it was bound to has said
its terminal word or is gone; until then those replicas still hold a slot for it.
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


class RequestMachine:
    """One request and the stages that still owe a terminal word."""

    def __init__(self, stages: Iterable[int]) -> None:
        """Begin bound to one replica of every one of `stages`."""
        self._owing = dict.fromkeys(stages)
        self._running = True
        self._has_output = False

    @property
    def running(self) -> bool:
        """Whether it has not ended for its user."""
        return self._running

    @property
    def settled(self) -> bool:
        """Whether no replica holds it any more."""
        return not self._owing

    @property
    def owing(self) -> tuple[int, ...]:
        """Stages that have not said their terminal word, in the order they were given."""
        return tuple(self._owing)

    @property
    def has_output(self) -> bool:
        """Whether its user has been given anything, after which trying again would be noticed."""
        return self._has_output

    def output(self) -> bool:
        """A final stage has said something; whether it goes to the user."""
        self._has_output = self._has_output or self._running
        return self._running

    def finished(self, stage: int) -> list[Action]:
        """A stage has finished."""
        actions = self._settle(stage)
        if actions and self._running and not self._owing:
            actions.append(self._end(None))
        return actions

    def failed(self, stage: int, error: StagemeshError) -> list[Action]:
        """A stage has failed, has forgotten the request, or its replica is gone."""
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
