"""Groups over NCCL: one communicator for each, so that rings do not wait for others' sums.

An all-to-all whose pieces are unequal or empty is one group of sends and receives there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import torch
from torch import distributed

from stagemesh.errors import MeshError
from stagemesh.parallel.mesh.links import Pending
from stagemesh.parallel.mesh.process_groups import ProcessGroupLink
from stagemesh.parallel.mesh.ranks import Group
from stagemesh.parallel.mesh.stores import Store


def connect(group: Group, store: Store, within_s: float) -> NcclLink:
    """Connect a group; `within_s` is also the deadline of every later wait."""
    if not distributed.is_nccl_available() or not torch.cuda.is_available():
        raise MeshError("no card, or torch without NCCL")
    options = distributed.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=within_s)  # noqa: SLF001  there is no other way
    made = distributed.ProcessGroupNCCL(store, group.own, group.size, options)
    # its operations are those of a process group, which its type does not tell
    return NcclLink(group, cast("distributed.ProcessGroup", made))


class _Waiting:
    """An operation on the stream of the group."""

    def __init__(self, link: NcclLink, work: distributed.Work) -> None:
        self._link = link
        self._work = work

    def wait(self) -> None:
        """Let the current stream wait for it."""
        self._link.finish(self._work)


class NcclLink(ProcessGroupLink):
    """One group of cards."""

    def all_to_all(
        self, sends: Sequence[torch.Tensor], receives: Sequence[torch.Tensor]
    ) -> Pending:
        """Send and take pieces in one operation."""
        return _Waiting(self, self.connected().alltoall(list(receives), list(sends)))
