"""Attention over a cut sequence: Ulysses, ring, and rings of Ulysses groups, which is all one.

Ranks stand in rings of Ulysses groups: place = ring * U + ulysses, as the mesh has them. Each holds
some tokens of a sequence, with all heads. Within a Ulysses group tokens are traded for heads; then
keys and values go around the ring, while rows attend to those at hand; then heads are traded back.
A group of one rank leaves its part out. B batch, S own tokens, H heads, G heads of keys, D size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from stagemesh.parallel.mesh.communicator import Communicator, Exchange
from stagemesh.parallel.sequence.cuts import HeadCut, head_cuts, starts
from stagemesh.parallel.sequence.softmax import Partial, partial_attention
from stagemesh.spec.frozen import frozen


@frozen
class Streams:
    """Queries, keys and values of the same tokens."""

    q_bshd: torch.Tensor
    """Queries."""
    k_bsgd: torch.Tensor
    """Keys: as many heads as queries, or a divisor of that."""
    v_bsgd: torch.Tensor
    """Values."""

    def own_heads(self, cut: HeadCut) -> Streams:
        """Return the heads of a cut."""
        return Streams(
            q_bshd=self.q_bshd.narrow(2, cut.start, cut.heads),
            k_bsgd=self.k_bsgd.narrow(2, cut.kv_start, cut.kv_heads),
            v_bsgd=self.v_bsgd.narrow(2, cut.kv_start, cut.kv_heads),
        )


@frozen
class Joint:
    """A stream that all ranks hold whole, such as a text, beside one that is cut."""

    streams: Streams
    """Its tokens."""
    rear: bool = False
    """Whether it stands behind the tokens that are cut, instead of before them."""


@frozen
class SequenceGroups:
    """Who shares the sequence, and how."""

    ulysses: Communicator
    """Trades tokens for heads."""
    ring: Communicator
    """Hands keys and values around."""
    lengths: tuple[int, ...]
    """Tokens of every rank in the order of places, also none."""
    packed: bool = True
    """Whether queries, keys and values travel in one operation, instead of three."""

    @property
    def chunks(self) -> tuple[int, ...]:
        """Tokens of every Ulysses group."""
        size = self.ulysses.group.size
        return tuple(sum(self.lengths[at : at + size]) for at in range(0, len(self.lengths), size))

    @property
    def traded(self) -> tuple[int, ...]:
        """Tokens of every rank of the own Ulysses group."""
        size = self.ulysses.group.size
        first = self.ring.group.own * size
        return self.lengths[first : first + size]


def attend(
    local: Streams,
    over: SequenceGroups,
    *,
    joint: Joint | None = None,
    mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the output of the own tokens, and that of the joint ones, which all ranks get.

    `mask` is that of the whole sequence, joint tokens included, the same on all ranks; it
    broadcasts to batch, heads, rows and columns: true where a row sees a column, or numbers to add.
    Raises `ValueError` before anything is sent: on all ranks alike for lengths, heads and masks; a
    rank that has not as many tokens as its length says raises alone, and the others see it go.
    """
    _check(local, over, joint, mask)
    heads, kv_heads = local.q_bshd.shape[2], local.k_bsgd.shape[2]
    cuts = head_cuts(heads, kv_heads, over.ulysses.group.size)
    cut = cuts[over.ulysses.group.own]
    whole = _scatter_heads(local, over, cuts)
    text = None if joint is None else joint.streams.own_heads(cut)
    rear = joint is not None and joint.rear
    num_text = 0 if text is None else text.q_bshd.shape[1]
    rows = whole.q_bshd
    if text is not None:
        rows = _beside(text.q_bshd, rows, rear=rear, dim=1)
    work = _Rows(
        q_bshd=rows,
        kv_of=cut.kv_of(heads // kv_heads),
        mask=None if mask is None else _heads_of(mask, cut),
        place=_Places(over, num_text, rear=rear),
        scale=local.q_bshd.shape[3] ** -0.5 if scale is None else scale,
    )
    seen = _around(work, over.ring, (whole, text))
    out = seen.out_bhsd.transpose(1, 2).to(local.q_bshd.dtype)
    if text is None:
        return _gather_heads(out, over, cuts), None
    lengths = [num_text, out.shape[1] - num_text]
    if rear:
        image, words = out.split(lengths[::-1], 1)
    else:
        words, image = out.split(lengths, 1)
    all_words = over.ulysses.all_gather_v(words, 2, [each.heads for each in cuts])
    return _gather_heads(image, over, cuts), all_words


def _beside(text: torch.Tensor, image: torch.Tensor, *, rear: bool, dim: int) -> torch.Tensor:
    return torch.cat([image, text] if rear else [text, image], dim)


class _Places:
    """Where the tokens of the parts stand in the whole sequence."""

    def __init__(self, over: SequenceGroups, text: int, *, rear: bool) -> None:
        self._chunks = over.chunks
        self._own = over.ring.group.own
        self._starts = [at + (0 if rear else text) for at in starts(self._chunks)]
        total = sum(self._chunks)
        self._text = torch.arange(total, total + text) if rear else torch.arange(text)
        self._rear = rear

    def length(self, source: int) -> int:
        """How many tokens a chunk has."""
        return self._chunks[source]

    def rows(self) -> torch.Tensor:
        """The places of the own rows, in their order."""
        return _beside(self._text, self._tokens(self._own), rear=self._rear, dim=0)

    def columns(self, source: int, *, first: bool) -> torch.Tensor:
        """The places of the columns of a step: joint ones stand before those of the first."""
        tokens = self._tokens(source)
        return torch.cat([self._text, tokens]) if first else tokens

    def _tokens(self, source: int) -> torch.Tensor:
        first = self._starts[source]
        return torch.arange(first, first + self._chunks[source])


@frozen
class _Rows:
    """Own rows, and what they need to attend to any columns."""

    q_bshd: torch.Tensor
    """Queries, joint ones included."""
    kv_of: list[int]
    """The key head of each query head."""
    mask: torch.Tensor | None
    """The mask of the own heads, for all rows and columns."""
    place: _Places
    """Where tokens stand."""
    scale: float
    """What scores are multiplied with."""

    def see(self, k: torch.Tensor, v: torch.Tensor, columns: torch.Tensor) -> Partial:
        """Attend to columns, whose places in the sequence are given."""
        heads = torch.tensor(self.kv_of, dtype=torch.long, device=k.device)
        mask = self.mask
        if mask is not None:
            mask = _pick(_pick(mask, 2, self.place.rows()), 3, columns)
        return partial_attention(
            self.q_bshd, k.index_select(2, heads), v.index_select(2, heads), mask, self.scale
        )


def _pick(mask: torch.Tensor, dim: int, places: torch.Tensor) -> torch.Tensor:
    return mask if mask.shape[dim] == 1 else mask.index_select(dim, places.to(mask.device))


def _heads_of(mask: torch.Tensor, cut: HeadCut) -> torch.Tensor:
    return mask if mask.shape[1] == 1 else mask.narrow(1, cut.start, cut.heads)


def _around(work: _Rows, ring: Communicator, parts: tuple[Streams, Streams | None]) -> Partial:
    """Attend to every chunk in turn; the next one comes while one is at work."""
    whole, text = parts
    seen: Partial | None = None
    kv = torch.stack([whole.k_bsgd, whole.v_bsgd])
    for step in range(ring.group.size):
        source = ring.group.after(-step)
        coming = _hand_on(kv, work, ring, step)
        k, v = kv[0], kv[1]
        if step == 0 and text is not None:
            k, v = torch.cat([text.k_bsgd, k], 1), torch.cat([text.v_bsgd, v], 1)
        columns = work.place.columns(source, first=step == 0)
        part = work.see(k, v, columns)
        seen = part if seen is None else seen.join(part)
        if coming is not None:
            kv = coming.wait()
    assert seen is not None
    return seen


def _hand_on(kv: torch.Tensor, work: _Rows, ring: Communicator, step: int) -> Exchange | None:
    """Begin to send the keys and values at hand to the next rank; the last ones stay."""
    if step == ring.group.size - 1:
        return None
    shape = list(kv.shape)
    shape[2] = work.place.length(ring.group.after(-step - 1))
    return ring.exchange(kv, ring.group.after(1), shape, ring.group.after(-1))


def _scatter_heads(local: Streams, over: SequenceGroups, cuts: Sequence[HeadCut]) -> Streams:
    """Trade tokens for heads: all tokens of the group, with the own heads."""
    if over.ulysses.group.size == 1:
        return local
    parts = [local.own_heads(cut) for cut in cuts]
    own = cuts[over.ulysses.group.own]
    counts = (own.heads, own.kv_heads, own.kv_heads)
    sends = [(each.q_bshd, each.k_bsgd, each.v_bsgd) for each in parts]
    batch, _, _, size = local.q_bshd.shape
    shapes = [[(batch, n, count, size) for count in counts] for n in over.traded]
    if over.packed:
        flat = over.ulysses.all_to_all_v(
            [torch.cat([each.reshape(-1) for each in part]) for part in sends],
            [(sum(map(math.prod, part)),) for part in shapes],
        )
        got = [
            [piece.view(shape) for piece, shape in zip(_split(each, part), part, strict=True)]
            for each, part in zip(flat, shapes, strict=True)
        ]
    else:
        in_turn = [
            over.ulysses.all_to_all_v([part[n] for part in sends], [part[n] for part in shapes])
            for n in range(3)
        ]
        got = [list(each) for each in zip(*in_turn, strict=True)]
    q, k, v = (torch.cat([each[n] for each in got], 1) for n in range(3))
    return Streams(q_bshd=q, k_bsgd=k, v_bsgd=v)


def _split(flat: torch.Tensor, shapes: Sequence[Sequence[int]]) -> Sequence[torch.Tensor]:
    parts: Sequence[torch.Tensor] = flat.split([math.prod(shape) for shape in shapes])
    return parts


def _gather_heads(out: torch.Tensor, over: SequenceGroups, cuts: Sequence[HeadCut]) -> torch.Tensor:
    """Trade heads for tokens: the own tokens, with all heads."""
    if over.ulysses.group.size == 1:
        return out
    batch, _, _, size = out.shape
    own = over.traded[over.ulysses.group.own]
    got = over.ulysses.all_to_all_v(
        out.split(over.traded, 1), [(batch, own, cut.heads, size) for cut in cuts]
    )
    return torch.cat(got, 2)


def _check(
    local: Streams, over: SequenceGroups, joint: Joint | None, mask: torch.Tensor | None
) -> None:
    ranks = over.ulysses.group.size * over.ring.group.size
    if len(over.lengths) != ranks:
        raise ValueError(f"`{len(over.lengths)}` lengths for `{ranks}` ranks")
    own = over.traded[over.ulysses.group.own]
    if {own} != {each.shape[1] for each in (local.q_bshd, local.k_bsgd, local.v_bsgd)}:
        raise ValueError(f"not `{own}` tokens here, as the lengths say")
    if mask is None:
        return
    total = sum(over.lengths) + (0 if joint is None else joint.streams.q_bshd.shape[1])
    batch, _, heads, _ = local.q_bshd.shape
    for had, wanted in zip(mask.shape, (batch, heads, total, total), strict=True):
        if had not in {1, wanted}:
            raise ValueError(f"a mask of `{tuple(mask.shape)}` for `{total}` tokens")
