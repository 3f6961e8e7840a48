"""stagemesh: plan and run multi-stage generative models under one small strategy file.

`Omni` and `AsyncOmni` run a model; `stagemesh.errors` holds what they raise. Importing this
package costs nothing: names are resolved when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagemesh.spec.reference import resolve

if TYPE_CHECKING:
    from stagemesh.runtime.omni import AsyncOmni, Omni

_PUBLIC = {
    "AsyncOmni": "stagemesh.runtime.omni:AsyncOmni",
    "Omni": "stagemesh.runtime.omni:Omni",
}

__all__ = ["AsyncOmni", "Omni"]


def __getattr__(name: str) -> object:
    """Resolve a public name on first use."""
    if name not in _PUBLIC:
        message = f"module `stagemesh` has no attribute `{name}`"
        raise AttributeError(message)
    return resolve(_PUBLIC[name])
