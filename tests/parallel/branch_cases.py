"""What the ranks of a pool do to test branches of guidance."""

from __future__ import annotations

import torch

from stagemesh.parallel.branches import Branch, Outputs, guided, run_branches
from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.mesh.device_mesh import DeviceMesh
from stagemesh.spec.model_plan import Guidance, Normalise


def branch(number: int, ran: list[int]) -> Branch:
    """A branch with two outputs of different types."""

    def run() -> Outputs:
        ran.append(number)
        random = torch.Generator().manual_seed(number)
        picture = torch.randn(2, 3, 5, generator=random)
        sound = torch.randn(7, generator=random).bfloat16()
        return picture, sound

    return run


def on_all_ranks(meshes: dict[str, DeviceMesh], backend: str, num: int) -> list[int]:
    """Bitwise what one rank gets; returns the branches that ran here, and calls and bytes."""
    over, alone = meshes[backend].over("all"), meshes[backend].over("solo")
    ran: list[int] = []
    before = over.traffic
    got = run_branches([branch(n, ran) for n in range(num)], over)
    after = over.traffic
    wanted = run_branches([branch(n, []) for n in range(num)], alone)
    assert len(got) == len(wanted) == num
    for mine, theirs in zip(got, wanted, strict=True):
        assert [each.dtype for each in mine] == [torch.float32, torch.bfloat16]
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    how = Guidance(normalise=Normalise.LAST_DIM)
    one = guided(got[0], got[1], 4.0, how)
    other = guided(wanted[0], wanted[1], 4.0, how)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    return [*ran, -1, after.calls - before.calls, after.sent_bytes - before.sent_bytes]


def too_many_ranks(meshes: dict[str, DeviceMesh]) -> str:
    """Fewer branches than ranks: none of them runs."""
    ran: list[int] = []
    over: Communicator = meshes["host_memory"].over("all")
    try:
        run_branches([branch(0, ran)], over)
    except ValueError as error:
        assert ran == []
        return str(error)
    return "no error"
