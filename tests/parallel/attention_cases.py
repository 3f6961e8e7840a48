"""What the ranks of a pool do to test attention: each computes the whole by itself as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stagemesh.parallel.mesh.communicator import Traffic
from stagemesh.parallel.mesh.device_mesh import DeviceMesh
from stagemesh.parallel.sequence.attention import Joint, SequenceGroups, Streams, attend
from stagemesh.parallel.sequence.cuts import balanced, sp_gather, sp_shard, starts
from stagemesh.parallel.sequence.ledger import AttentionShape, Ledger
from stagemesh.parallel.sequence.softmax import Partial

AXES = {"ulysses": ("all", "solo"), "ring": ("solo", "all"), "usp": ("ulysses", "ring")}


def made(shape: dict[str, Any], tokens: int, random: torch.Generator) -> Streams:
    """Random queries, keys and values."""
    q, k, v = (
        torch.randn(shape["batch"], tokens, heads, shape["head_size"], generator=random).to(
            getattr(torch, shape["dtype"])
        )
        for heads in (shape["heads"], shape["kv_heads"], shape["kv_heads"])
    )
    return Streams(q_bshd=q, k_bsgd=k, v_bsgd=v)


def mask_of(shape: dict[str, Any], total: int, random: torch.Generator) -> torch.Tensor | None:
    """A mask of a kind; some rows of `rows` see nothing at all."""
    kind = shape["mask"]
    if kind == "none":
        return None
    if kind == "columns":
        return torch.rand(shape["batch"], 1, 1, total, generator=random) < 0.6
    mask = torch.rand(1, shape["heads"], total, total, generator=random) < 0.5
    if kind == "rows":
        mask[:, :, ::3] = False
        return mask
    numbers = torch.randn(1, 1, total, total, generator=random)
    return numbers.masked_fill(~mask[:, :1], -torch.inf)


def single(whole: Streams, mask: torch.Tensor | None) -> torch.Tensor:
    """Attention by its definition in fp64; a row that sees nothing is 0."""
    group = whole.q_bshd.shape[2] // whole.k_bsgd.shape[2]
    k = whole.k_bsgd.double().repeat_interleave(group, 2)
    v = whole.v_bsgd.double().repeat_interleave(group, 2)
    scores = torch.einsum("bshd,bthd->bhst", whole.q_bshd.double(), k)
    scores = scores / whole.q_bshd.shape[3] ** 0.5
    if mask is not None:
        added = (
            torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
            if mask.dtype == torch.bool
            else mask
        )
        scores = scores + added.double()
    return torch.einsum("bhst,bthd->bshd", scores.softmax(-1).nan_to_num(0.0), v)


def cut(streams: Streams, start: int, length: int) -> Streams:
    """Some tokens."""
    q, k, v = (
        each.narrow(1, start, length) for each in (streams.q_bshd, streams.k_bsgd, streams.v_bsgd)
    )
    return Streams(q_bshd=q, k_bsgd=k, v_bsgd=v)


def attention_error(meshes: dict[str, DeviceMesh], shape: dict[str, Any], fault: str) -> float:
    """The largest error of the own tokens and of the joint ones; traffic is as the formulas say."""
    mesh = meshes[shape["backend"]]
    names = AXES[shape["way"]]
    ulysses, ring = (mesh.over(name) for name in names)
    random = torch.Generator().manual_seed(shape["seed"])
    size = mesh.layout.world_size
    lengths = tuple(shape["lengths"] or balanced(shape["tokens"], size))
    total = sum(lengths)
    image, text = made(shape, total, random), made(shape, shape["joint"] or 0, random)
    order = (image, text) if shape["rear"] else (text, image)
    whole = Streams(
        q_bshd=torch.cat([each.q_bshd for each in order], 1),
        k_bsgd=torch.cat([each.k_bsgd for each in order], 1),
        v_bsgd=torch.cat([each.v_bsgd for each in order], 1),
    )
    mask = mask_of(shape, total + (shape["joint"] or 0), random)
    own = int(mesh.rank)
    start = starts(lengths)[(own + 1) % size if fault == "ranks" else own]
    joint = None if shape["joint"] is None else Joint(streams=text, rear=shape["rear"])
    before = [ulysses.traffic, ring.traffic]
    over = SequenceGroups(ulysses=ulysses, ring=ring, lengths=lengths, packed=shape["packed"])
    mend = _break(fault)
    got, words = attend(
        cut(image, start, lengths[own]),
        over,
        joint=joint,
        mask=None if fault == "mask" else mask,
    )
    mend()
    wanted = single(whole, mask)
    at = 0 if shape["rear"] else shape["joint"] or 0
    errors = [got.double() - wanted.narrow(1, at + starts(lengths)[own], lengths[own])]
    if words is not None:
        errors.append(
            words.double() - wanted.narrow(1, total if shape["rear"] else 0, shape["joint"])
        )
    assert got.dtype == image.q_bshd.dtype
    _compare(shape, lengths, own, names, (before, [ulysses.traffic, ring.traffic]))
    return max((float(each.abs().max()) for each in errors if each.numel()), default=0.0)


def _break(fault: str) -> Callable[[], None]:
    """Leave the second step of every ring out; returns what mends it."""
    name, kept = "join", Partial.join
    if fault == "ring_step":
        setattr(Partial, name, lambda self, _other: self)

    def mend() -> None:
        setattr(Partial, name, kept)

    return mend


def _compare(
    shape: dict[str, Any],
    lengths: tuple[int, ...],
    own: int,
    names: tuple[str, str],
    counted: tuple[list[Traffic], list[Traffic]],
) -> None:
    """Hold what was counted, before and after, against the formulas."""
    width = 2 if shape["way"] == "usp" else (len(lengths) if shape["way"] == "ulysses" else 1)
    costs = AttentionShape(
        batch=shape["batch"],
        lengths=lengths,
        ulysses=width,
        heads=shape["heads"],
        kv_heads=shape["kv_heads"],
        head_bytes=shape["head_size"] * getattr(torch, shape["dtype"]).itemsize,
        joint=shape["joint"],
        packed=shape["packed"],
    )
    ledger = Ledger()
    ledger.expect(names[0], costs.ulysses_traffic(own))
    ledger.expect(names[1], costs.ring_traffic(own))
    made = {
        name: Traffic(calls=b.calls - a.calls, sent_bytes=b.sent_bytes - a.sent_bytes)
        for name, a, b in zip(names, *counted, strict=True)
    }
    assert ledger.differences(made) == []


def shard_and_gather(meshes: dict[str, DeviceMesh], length: int) -> list[str]:
    """What is cut comes together again; returns what is refused."""
    over = meshes["host_memory"].over("all")
    whole = torch.arange(3 * length).view(3, length)
    part = sp_shard(whole, 1, over, validate=False)
    assert torch.equal(sp_gather(part, 1, over, length=length), whole)
    refused = []
    for gather in (False, True):
        try:
            if gather:
                sp_gather(part, 1, over, length=99)
            else:
                sp_shard(whole, 1, over)
        except ValueError as error:
            refused.append(str(error))
    return refused


def refusals(meshes: dict[str, DeviceMesh]) -> list[str]:
    """What is refused before anything is sent."""
    mesh = meshes["host_memory"]
    ulysses, ring = mesh.over("all"), mesh.over("solo")
    streams = made(
        {"batch": 1, "heads": 3, "kv_heads": 3, "head_size": 2, "dtype": "float32"},
        2,
        torch.Generator().manual_seed(0),
    )
    size = mesh.layout.world_size
    wrong: list[tuple[tuple[int, ...], torch.Tensor | None]] = [
        ((2,), None),
        ((1,) * size, None),
        ((2,) * size, torch.ones(1, 1, 1, 3, dtype=torch.bool)),
    ]
    told = []
    for lengths, mask in wrong:
        over = SequenceGroups(ulysses=ulysses, ring=ring, lengths=lengths)
        try:
            attend(streams, over, mask=mask)
        except ValueError as error:
            told.append(str(error))
    return told
