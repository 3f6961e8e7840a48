"""What the ranks of a pool do to test the communicator. Every rank knows what all others send."""

from __future__ import annotations

import torch

from stagemesh.errors import PeerError
from stagemesh.parallel.mesh.device_mesh import DeviceMesh

Meshes = dict[str, DeviceMesh]


def piece(source: int, target: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What one place sends another: unequal, and nothing to some."""
    length = (3 * source + 2 * target) % 7
    return (torch.arange(length * 2).view(length, 2) + 10 * source + target).to(dtype)


def all_to_all(meshes: Meshes, backend: str, dtype: str) -> list[int]:
    """Pieces of all lengths arrive where they belong."""
    comm = meshes[backend].over("all")
    own, size, kind = comm.group.own, comm.group.size, getattr(torch, dtype)
    before = comm.traffic
    wanted = [piece(n, own, kind) for n in range(size)]
    got = comm.all_to_all_v(
        [piece(own, n, kind) for n in range(size)], [each.shape for each in wanted]
    )
    assert all(a.dtype == kind and torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    sent = sum(piece(own, n, kind).nbytes for n in range(size) if n != own)
    after = comm.traffic
    assert after.calls - before.calls == 1
    assert after.sent_bytes - before.sent_bytes == sent
    return [after.calls, after.sent_bytes]


def sums(meshes: Meshes, backend: str, length: int, dtype: str) -> list[float]:
    """An all-reduce has the same bits everywhere, and its parts are those of a reduce-scatter."""
    comm = meshes[backend].over("all")
    kind = getattr(torch, dtype)
    made = [
        torch.randn(length, generator=torch.Generator().manual_seed(n)).to(kind)
        for n in range(comm.group.size)
    ]
    own = comm.group.own
    kept = made[own].clone()
    total = comm.all_reduce(made[own])
    assert torch.equal(made[own], kept)
    exact = torch.stack(made).double().sum(0)
    bound = 1e-5 if kind == torch.float32 else 1e-13
    assert (total.double() - exact).abs().max() <= bound
    cuts = [length // comm.group.size] * comm.group.size
    cuts[0] += length - sum(cuts)
    part = comm.reduce_scatter(made[own], 0, cuts)
    assert ((part.double() - exact.split(cuts)[own]).abs() <= bound).all()
    gathered = comm.all_gather_v(part, 0, cuts)
    assert (gathered.double() - exact).abs().max() <= bound
    return [float(each) for each in (*total[:64], *gathered[:64])]


def around(meshes: Meshes, backend: str, length: int) -> int:
    """What goes around the ring comes from the place before, whatever its length."""
    comm = meshes[backend].over("all")
    lengths = [length + n for n in range(comm.group.size)]
    sent = torch.full((lengths[comm.group.own],), float(comm.group.own), dtype=torch.float64)
    source = comm.group.after(-1)
    pending = comm.exchange(sent, comm.group.after(1), (lengths[source],), source)
    got = pending.wait()
    assert torch.equal(got, torch.full((lengths[source],), float(source), dtype=torch.float64))
    return comm.traffic.sent_bytes


def in_turn(meshes: Meshes, backend: str, times: int) -> float:
    """Many small sums one after the other, in groups of two at the same time."""
    comm, total = meshes[backend].over("ulysses"), torch.zeros(4)
    for step in range(times):
        total += comm.all_reduce(torch.full((4,), float(step)))
    return float(total[0])


def wait_for_lost(meshes: Meshes, backend: str) -> str:
    """Wait for a rank that will be killed; returns what the error says."""
    try:
        meshes[backend].over("all").all_reduce(torch.ones(4))
        meshes[backend].over("all").all_reduce(torch.ones(4))
    except PeerError as error:
        meshes[backend].close()
        return f"{error.code}: {error}"
    return "no error"


def closed(meshes: Meshes, backend: str) -> str:
    """Use a mesh after it was closed."""
    meshes[backend].close()
    try:
        meshes[backend].over("all").all_reduce(torch.ones(4))
    except PeerError as error:
        return str(error)
    return "no error"
