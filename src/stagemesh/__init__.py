"""stagemesh: plan and run multi-stage generative models under one small strategy file.

`Omni` and `AsyncOmni` run a model, `parallelize` runs a pipeline of `diffusers` on several ranks;
`stagemesh.errors` holds what they raise. Importing this package costs nothing: names are resolved
when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagemesh.spec.reference import resolve

if TYPE_CHECKING:
    from stagemesh.parallel.parallelize import Parallelized, parallelize
    from stagemesh.runtime.audio import Audio
    from stagemesh.runtime.hints import RouteHints
    from stagemesh.runtime.omni import AsyncOmni, Omni
    from stagemesh.runtime.outputs import OmniOutput, OmniResult, StageProgress, StageReport

__all__ = [
    "AsyncOmni",
    "Audio",
    "Omni",
    "OmniOutput",
    "OmniResult",
    "Parallelized",
    "RouteHints",
    "StageProgress",
    "StageReport",
    "parallelize",
]

_OUTPUTS = ("OmniOutput", "OmniResult", "StageProgress", "StageReport")
_PUBLIC = {
    "AsyncOmni": "runtime.omni",
    "Audio": "runtime.audio",
    "Omni": "runtime.omni",
    "RouteHints": "runtime.hints",
    **dict.fromkeys(_OUTPUTS, "runtime.outputs"),
    **dict.fromkeys(("Parallelized", "parallelize"), "parallel.parallelize"),
}


def __getattr__(name: str) -> object:
    """Resolve a public name on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module `stagemesh` has no attribute `{name}`")
    return resolve(f"stagemesh.{_PUBLIC[name]}:{name}")


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
