"""Attention inside of a bound network: what a site is given is its own part of a sequence."""

from __future__ import annotations

from contextvars import Token
from typing import Any, Final

import torch
from torch import nn

from stagemesh.errors import ActivityError
from stagemesh.parallel.sdpa import INSTEAD, ORIGINAL, Attention, take_the_place
from stagemesh.parallel.sequence.attention import Streams, attend
from stagemesh.parallel.sequence.ledger import AttentionShape
from stagemesh.parallel.walker.bound import Bound
from stagemesh.spec.model_plan import AttentionSite, SiteRole

_MASK_DIMS: Final = 4
_ROWS, _COLUMNS = 2, 3


class Sites:
    """The sites of one network: which of them runs, and what attention is there."""

    def __init__(self, bound: Bound) -> None:
        """From now on callers of attention come by here while the network runs."""
        self._bound = bound
        self._running: list[tuple[AttentionSite, str]] = []
        self._tokens: list[Token[Attention | None]] = []
        take_the_place()

    def bind(self, path: str, module: nn.Module, pattern: str) -> None:
        """Watch when a module runs that calls attention."""
        site = next(each for each in self._bound.plan.sites if each.module == pattern)
        if site.role is SiteRole.JOINT:
            raise ActivityError(f"`{path}` joins a whole stream with parts, which is not bound yet")

        def enter(_module: nn.Module, _args: object) -> None:
            if site.role is not SiteRole.LOCAL:
                self._bound.activity.owe(path, f"`{path}` ran and called no attention")
            self._running.append((site, path))

        def leave(_module: nn.Module, _args: object, _output: object) -> None:
            self._running.pop()

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave, always_call=True)

    def begin(self) -> None:
        """The network begins to run."""
        self._tokens.append(INSTEAD.set(self._attention))

    def end(self) -> None:
        """It has ended."""
        self._running.clear()
        INSTEAD.reset(self._tokens.pop())

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002  as torch has it
        **further: Any,  # noqa: ANN401  as torch has it: `scale` and `enable_gqa`
    ) -> torch.Tensor:
        site, path = self._running[-1] if self._running else (None, "")
        if site is None and self._bound.lengths:
            name = self._bound.plan.name
            message = f"attention in `{name}` that is no site of its plan, after tokens were cut"
            raise ActivityError(message)
        if site is not None:
            self._bound.activity.done(path)
        if site is None or site.role is not SiteRole.SELF:
            return ORIGINAL(query, key, value, attn_mask, dropout_p, is_causal, **further)
        if dropout_p or is_causal:
            raise ActivityError(f"attention in `{path}` is causal, or drops something out")
        return self._shared(
            site,
            path,
            Streams(
                q_bshd=query.transpose(1, 2),
                k_bsgd=key.transpose(1, 2),
                v_bsgd=value.transpose(1, 2),
            ),
            (attn_mask, further.get("scale")),
        )

    def _shared(
        self,
        site: AttentionSite,
        path: str,
        local: Streams,
        how: tuple[torch.Tensor | None, float | None],
    ) -> torch.Tensor:
        """Attend over what all ranks hold."""
        mask, scale = how
        bound = self._bound
        places = bound.places(site.streams)
        if local.q_bshd.shape[1] != places[bound.groups.place]:
            message = f"attention in `{path}` has `{local.q_bshd.shape[1]}` tokens here"
            raise ActivityError(f"{message}, and its streams `{places[bound.groups.place]}`")
        if mask is not None:
            mask = self._whole_mask(path, mask, places)
        shape = AttentionShape(
            batch=local.q_bshd.shape[0],
            lengths=places,
            ulysses=bound.groups.ulysses.group.size,
            heads=local.q_bshd.shape[2],
            kv_heads=local.k_bsgd.shape[2],
            head_bytes=local.q_bshd.shape[3] * local.q_bshd.element_size(),
            packed=bound.groups.packed,
        )
        bound.activity.expect(bound.groups.ulysses, shape.ulysses_traffic(bound.groups.place))
        bound.activity.expect(bound.groups.ring, shape.ring_traffic(bound.groups.place))
        out, _ = attend(local, bound.groups.sequence(places), mask=mask, scale=scale)
        return out.transpose(1, 2)

    def _whole_mask(self, path: str, mask: torch.Tensor, places: tuple[int, ...]) -> torch.Tensor:
        """Join the columns of a mask that all rows share; of others no rank knows enough."""
        while mask.ndim < _MASK_DIMS:
            mask = mask.unsqueeze(0)
        first = mask.narrow(_ROWS, 0, 1)
        if mask.shape[_ROWS] > 1 and not torch.equal(mask, first.expand_as(mask)):
            raise ActivityError(f"attention in `{path}` has a mask that is another for each row")
        if first.shape[_COLUMNS] == 1:
            return first
        first = first.contiguous()
        for over, traffic in self._bound.groups.gather_traffic(first, _COLUMNS, places):
            self._bound.activity.expect(over, traffic)
        return self._bound.groups.gather(first, _COLUMNS, places)
