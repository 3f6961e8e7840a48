"""Groups over gloo, with everything that has to be worked around there.

- Only whole bytes travel: collectives of gloo refuse types of eight bits (the communicator sees to
  it). Sums keep their type.
- Gathers of unequal lengths do not exist there: all that is gathered goes as one all-to-all.
- Point-to-point sends want contiguous memory and a tag; an all-to-all with empty pieces wants none.
- Operations begin even when a member is gone: that is told by the wait, or by the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias, cast

import torch
from torch import distributed

from stagemesh.parallel.mesh.links import Pending
from stagemesh.parallel.mesh.process_groups import ProcessGroupLink
from stagemesh.parallel.mesh.ranks import Group
from stagemesh.parallel.mesh.stores import Store

_Pieces: TypeAlias = list[tuple[torch.Tensor, torch.Tensor]]


def connect(group: Group, store: Store, within_s: float) -> GlooLink:
    """Connect a group; `within_s` is also the deadline of every later wait."""
    made = distributed.ProcessGroupGloo(store, group.own, group.size, timedelta(seconds=within_s))
    # its operations are those of a process group, which its type does not tell
    return GlooLink(group, cast("distributed.ProcessGroup", made))


class _Waiting:
    """An all-to-all whose pieces come in one buffer."""

    def __init__(self, link: GlooLink, work: distributed.Work, pieces: _Pieces) -> None:
        self._link = link
        self._work = work
        self._pieces = pieces

    def wait(self) -> None:
        """Share out what has come in."""
        self._link.finish(self._work)
        for into, piece in self._pieces:
            into.copy_(piece)


class GlooLink(ProcessGroupLink):
    """One group over TCP or the loopback interface."""

    def all_to_all(
        self, sends: Sequence[torch.Tensor], receives: Sequence[torch.Tensor]
    ) -> Pending:
        """Send and take pieces in one operation."""
        lengths = [len(each) for each in receives]
        buffer = sends[0].new_empty(sum(lengths))
        work = self.connected().alltoall_base(
            buffer, torch.cat(list(sends)), lengths, [len(each) for each in sends]
        )
        return _Waiting(self, work, list(zip(receives, buffer.split(lengths), strict=True)))

    def close(self) -> None:
        """Close the connections of the group."""
        if self._process_group is not None:
            self._process_group.shutdown()
            self._process_group = None
