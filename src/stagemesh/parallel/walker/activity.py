"""Proof that what was bound has run: what a plan promises of one forward, held against it.

A module that calls attention in a way that nobody sees, a split that is never come by, a layer that
sends other bytes than its formula says: each would be a network that computes something else, or a
layout that does nothing. The first forward is compared; it fails naming the module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stagemesh.errors import ActivityError
from stagemesh.parallel.mesh.communicator import Communicator, Traffic
from stagemesh.parallel.sequence.ledger import Ledger


class Activity:
    """What has to happen in the first forward of one network, and what has."""

    def __init__(self, name: str, groups: Sequence[Communicator]) -> None:
        """`groups` are those whose bytes are held against formulas."""
        self._name = name
        self._groups = groups
        self._due: dict[str, str] = {}
        self._ledger = Ledger()
        self._before = self._counted()
        self._is_proven = False

    def owe(self, key: str, what: str) -> None:
        """Something has to happen; `what` says so of its module."""
        self._due[key] = what

    def done(self, key: str) -> None:
        """It has happened."""
        self._due.pop(key, None)

    def expect(self, over: Communicator, traffic: Traffic) -> None:
        """Add what a formula says will be sent within a group."""
        if not self._is_proven and over.group.size > 1:
            self._ledger.expect(over.group.axis, traffic)

    def begin(self) -> None:
        """A forward begins."""
        if not self._is_proven:
            self._before, self._ledger = self._counted(), Ledger()

    def end(self) -> None:
        """A forward is complete: raises `ActivityError` if the first one was not what it should."""
        if self._is_proven:
            return
        missing = list(self._due.values())
        counted = {
            axis: Traffic(
                calls=now.calls - self._before[axis].calls,
                sent_bytes=now.sent_bytes - self._before[axis].sent_bytes,
            )
            for axis, now in self._counted().items()
        }
        missing += self._ledger.differences(counted)
        if missing:
            raise ActivityError(f"`{self._name}` does not do what its plan says: {missing[0]}")
        self._is_proven = True

    def _counted(self) -> Mapping[str, Traffic]:
        return {over.group.axis: over.traffic for over in self._groups}
