"""L2 and L3 of an axis: what is bound onto a model's layers, and which kernels run there."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from stagemesh.spec.frozen import frozen


class HookCategory(Enum):
    """Where in a block something is bound; the walker binds in the order of this list."""

    LINEAR = "linear"
    ATTENTION_PRE = "attention_pre"
    ATTENTION_POST = "attention_post"
    FFN_PRE = "ffn_pre"
    FFN_POST = "ffn_post"
    MOE_DISPATCH = "moe_dispatch"
    OTHER = "other"


@frozen
class LayerHookSpec:
    """One hook on the layers that match `target`."""

    hook_id: str
    """Name in the hook registry."""
    target: str
    """Glob over module paths."""
    category: HookCategory = HookCategory.OTHER
    """When it is bound, relative to others."""
    priority: int = 0
    """Order within the category; equal (category, target, priority) is a conflict."""


@frozen
class KernelSpec:
    """One kernel for the layers that match `target`."""

    kernel_id: str
    """Name in the kernel registry."""
    target: str
    """Glob over module paths."""
    category: HookCategory = HookCategory.OTHER
    """When it is bound, relative to others."""
    priority: int = 0
    """Order within the category; equal (category, target, priority) is a conflict."""
    group_axis: str | None = None
    """Axis whose group its collectives run over."""
    requires_collective: bool = False
    """Whether it needs that group."""


Binding: TypeAlias = LayerHookSpec | KernelSpec
"""What an axis binds onto layers."""
