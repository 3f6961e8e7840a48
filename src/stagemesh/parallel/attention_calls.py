"""Calls of attention in a network that runs: where they are made, and by how many heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from stagemesh.parallel.sdpa import ORIGINAL

TOKENS: Final = -2
"""Dimension of tokens of what attention is given."""
_HEADS: Final = -3
_WIDTH: Final = -1
_NAMES: Final = ("query", "key", "value", "attn_mask")

_Seen: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], None]
"""What is done with queries, keys and mask of each call."""


def follow(network: nn.Module) -> list[str]:
    """Return a list that holds the paths of the modules that run at each moment, inner ones last.

    What failed stays in it.
    """
    path: list[str] = []

    def entering(name: str) -> Callable[..., None]:
        return lambda _module, _args: path.append(name)

    def leaving(_module: nn.Module, _args: object, _output: object) -> None:
        path.pop()

    for name, module in network.named_modules():
        module.register_forward_pre_hook(entering(name))
        module.register_forward_hook(leaving)
    return path


class Attention(TorchFunctionMode):
    """Shows every call of attention that is made under it, and lets it pass."""

    def __init__(self, seen: _Seen) -> None:
        """`seen` is called before attention is."""
        super().__init__()
        self._seen = seen

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Look at attention and nothing else."""
        given = dict(kwargs or {})
        if func is ORIGINAL:
            named = {**dict(zip(_NAMES, args, strict=False)), **given}
            self._seen(named["query"], named["key"], named.get("attn_mask"))
        return func(*args, **given)


@dataclass(eq=False, slots=True, kw_only=True)
class Heads:
    """Numbers of query and key heads, and their width, in each module of a whole network."""

    known: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def note(self, path: str, query: torch.Tensor, key: torch.Tensor) -> None:
        """Remember one call."""
        self.known[path] = query.shape[_HEADS], key.shape[_HEADS], query.shape[_WIDTH]

    def misfit(self, path: str, query: torch.Tensor, key: torch.Tensor, ranks: int) -> str | None:
        """Say what a call on one of `ranks` ranks has that does not follow from the whole."""
        queries, keys, width = self.known[path]
        if query.shape[_WIDTH] != width:
            return f"they are `{query.shape[_WIDTH]}` wide and not `{width}`: add an attribute"
        own = query.shape[_HEADS]
        if own not in (queries, queries // ranks):
            return f"`{own}` heads are no part of `{queries}`"
        each = max(keys // ranks, 1) if own < queries else keys
        wanted = own if keys == queries else each
        if key.shape[_HEADS] != wanted:
            return f"`{key.shape[_HEADS]}` key heads belong to `{own}` heads, and not `{wanted}`"
        return None
