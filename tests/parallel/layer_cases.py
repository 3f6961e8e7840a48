"""What the ranks of a pool do to test layers: each compares with the whole layer on one device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from stagemesh.parallel.layers import (
    ColumnParallelLinear,
    DistributedRMSNorm,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from stagemesh.parallel.mesh.device_mesh import DeviceMesh


def random_of(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """The same tensors on every rank."""
    random = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]


def mlp(meshes: dict[str, DeviceMesh], *, apart: bool) -> float:
    """Columns, then rows: the error of the whole; `apart` gathers between them."""
    over = meshes["host_memory"].over("all")
    x, w1, b1, w2, b2 = random_of((2, 5, 6), (8, 6), (8,), (6, 8), (6,))
    first = ColumnParallelLinear((6, 8), over, return_bias=False, gather_output=apart).double()
    second = RowParallelLinear((8, 6), over, input_is_parallel=not apart).double()
    first.load("weight", w1)
    first.load("bias", b1)
    second.load("weight", w2)
    second.load("bias", b2)
    out, left = second(functional.gelu(first(x)))
    assert left is None
    whole = ReplicatedLinear(8, 6, return_bias=False).double()
    whole.load("weight", w2)
    whole.load("bias", b2)
    return float((out - whole(functional.gelu(functional.linear(x, w1, b1)))).abs().max())


def norm(meshes: dict[str, DeviceMesh]) -> float:
    """The own channels of the norm of the whole."""
    over = meshes["host_memory"].over("all")
    x, weight = random_of((3, 8), (8,))
    layer = DistributedRMSNorm(8, over).double()
    layer.load(weight)
    own = 8 // over.group.size
    wanted = functional.rms_norm(x, (8,), weight, 1e-6)
    at = over.group.own * own
    return float((layer(x[:, at : at + own]) - wanted[:, at : at + own]).abs().max())


def qkv(meshes: dict[str, DeviceMesh], kv_heads: int) -> list[float]:
    """Errors of own queries, keys and values; a head of keys may be on several ranks."""
    over = meshes["host_memory"].over("all")
    heads, size = 8, 3
    x, wq, wk, wv = random_of((2, 5), (heads * size, 5), (kv_heads * size, 5), (kv_heads * size, 5))
    layer = QKVParallelLinear(5, size, (heads, kv_heads), over, bias=False, return_bias=False)
    layer.double()
    for shard, weight in (("q", wq), ("k", wk), ("v", wv)):
        layer.load("weight", weight, shard)
    errors, ranks = [], over.group.size
    for n, (got, weight) in enumerate(
        zip(layer(x).split(layer.widths, -1), (wq, wk, wv), strict=True)
    ):
        first = over.group.own * heads // ranks
        at = (first if n == 0 else first // (heads // kv_heads)) * size
        errors.append(
            float((got - functional.linear(x, weight)[:, at : at + got.shape[1]]).abs().max())
        )
    return errors


def refusals(meshes: dict[str, DeviceMesh]) -> list[str]:
    """What does not divide."""
    over = meshes["host_memory"].over("all")
    told = []
    for make in (
        lambda: ColumnParallelLinear((6, 7), over),
        lambda: RowParallelLinear((7, 6), over),
        lambda: QKVParallelLinear(4, 2, (6, 3), over),
        lambda: QKVParallelLinear(4, 2, (12, 3), over),
    ):
        try:
            make()
        except ValueError as error:
            told.append(str(error))
    return told


def wrong_weights(meshes: dict[str, DeviceMesh]) -> list[str]:
    """What is not of the size of the layer."""
    over = meshes["host_memory"].over("all")
    columns, rows = ColumnParallelLinear((6, 8), over), RowParallelLinear((8, 6), over)
    heads, norm = QKVParallelLinear(4, 2, (8, 4), over), DistributedRMSNorm(8, over)
    told = []
    loads: list[Callable[[], None]] = [
        lambda: columns.load("weight", torch.ones(12, 6)),
        lambda: columns.load("bias", torch.ones(1)),
        lambda: rows.load("weight", torch.ones(6, 12)),
        lambda: rows.load("bias", torch.ones(1)),
        lambda: heads.load("weight", torch.ones(16, 4), "k"),
        lambda: norm.load(torch.ones(1)),
        lambda: ReplicatedLinear(2, 3).load("weight", torch.ones(3, 1)),
    ]
    for load in loads:
        try:
            load()
        except ValueError as error:
            told.append(str(error))
    return told
