"""The one attention of torch that networks call, and what takes its place inside a bound one."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeAlias

import torch
from torch.nn import functional

Attention: TypeAlias = Callable[..., torch.Tensor]
ORIGINAL: Final[Attention] = functional.scaled_dot_product_attention
"""Attention as torch has it."""

INSTEAD: Final[ContextVar[Attention | None]] = ContextVar("attention", default=None)
"""What is called in its place, where a network that is bound runs."""


def attention(*args: object, **kwargs: object) -> torch.Tensor:
    """Call what stands in the place of attention here; outside of bound networks the original."""
    instead = INSTEAD.get()
    return (ORIGINAL if instead is None else instead)(*args, **kwargs)


def take_the_place() -> None:
    """Let every caller of attention come by here. Doing it again changes nothing."""
    functional.scaled_dot_product_attention = attention
