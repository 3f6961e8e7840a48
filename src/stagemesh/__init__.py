"""stagemesh: plan and run multi-stage generative models under one small strategy file.

`Omni` and `AsyncOmni` run a model; `stagemesh.errors` holds what they raise. Importing this
package costs nothing: names are resolved when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagemesh.spec.reference import resolve

if TYPE_CHECKING:
    from stagemesh.runtime.audio import Audio
    from stagemesh.runtime.omni import AsyncOmni, Omni
    from stagemesh.runtime.outputs import OmniOutput, OmniResult, StageProgress, StageReport

_PUBLIC = {
    "AsyncOmni": "stagemesh.runtime.omni:AsyncOmni",
    "Audio": "stagemesh.runtime.audio:Audio",
    "Omni": "stagemesh.runtime.omni:Omni",
    "OmniOutput": "stagemesh.runtime.outputs:OmniOutput",
    "OmniResult": "stagemesh.runtime.outputs:OmniResult",
    "StageProgress": "stagemesh.runtime.outputs:StageProgress",
    "StageReport": "stagemesh.runtime.outputs:StageReport",
}

__all__ = [
    "AsyncOmni",
    "Audio",
    "Omni",
    "OmniOutput",
    "OmniResult",
    "StageProgress",
    "StageReport",
]


def __getattr__(name: str) -> object:
    """Resolve a public name on first use."""
    if name not in _PUBLIC:
        message = f"module `stagemesh` has no attribute `{name}`"
        raise AttributeError(message)
    return resolve(_PUBLIC[name])
