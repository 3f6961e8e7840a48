"""What links over process groups of torch have in common: their waits, their sums, their end."""

from __future__ import annotations

import torch
from torch import distributed

from stagemesh.errors import PeerError
from stagemesh.parallel.mesh.ranks import Group


class ProcessGroupLink:
    """A process group made for exactly the ranks of one group, which it knows by their places."""

    def __init__(self, group: Group, process_group: distributed.ProcessGroup) -> None:
        """Take over a process group that no other code knows."""
        self._group = group
        self._process_group: distributed.ProcessGroup | None = process_group

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum in place."""
        with_link = self.connected()
        self.finish(with_link.allreduce([tensor]))

    def finish(self, work: distributed.Work) -> None:
        """Wait for the end of an operation."""
        try:
            work.wait()
        except RuntimeError as error:
            told = str(error).splitlines()[0]
            raise PeerError(f"a rank of `{self._group.axis}` is gone or late: {told}") from error

    def connected(self) -> distributed.ProcessGroup:
        """Return the process group; raises when the link is closed."""
        if self._process_group is None:
            raise PeerError(f"the mesh has been closed: nothing goes over `{self._group.axis}`")
        return self._process_group

    def close(self) -> None:
        """End what is under way, so that no member waits for ever."""
        if self._process_group is not None:
            self._process_group.abort()
            self._process_group = None
