"""What a request may say to a denoising loop; parameters of one model alone are `extra_args`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, TypeAlias

from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen

# bounds as the stage fields write them: equal annotations are one, whichever is made first
_Count: TypeAlias = Annotated[int, Range(minimum=1)]
_Scale: TypeAlias = Annotated[float, Range(minimum=0)]
_Share: TypeAlias = Annotated[float, Range(minimum=0, maximum=1)]


@frozen
class DiffusionParams:
    """Parameters of one request; `None` takes what is usual for the model."""

    negative_prompt: str | None = None
    """What the result should not show; guidance leads away from it."""
    num_inference_steps: _Count | None = None
    """Denoising steps."""
    guidance_scale: _Scale | None = None
    """Strength of guidance, or the embedded one of models that were distilled from it."""
    guidance_scale_2: _Scale | None = None
    """Strength for the second denoiser, of models that have two."""
    true_cfg_scale: _Scale | None = None
    """Strength of guidance by two branches, of models whose `guidance_scale` is embedded."""
    guidance_rescale: _Share | None = None
    """How far the guided prediction is brought back to the spread of the unguided one; 0 for not
    at all."""
    cfg_normalize: bool | None = None
    """Whether the guided prediction keeps the norm of the unguided one."""
    height: _Count | None = None
    """Rows of pixels."""
    width: _Count | None = None
    """Pixels of a row."""
    num_frames: _Count | None = None
    """Pictures of a clip."""
    fps: Annotated[float, Range(above=0)] | None = None
    """Pictures of a clip that are shown in a second."""
    num_outputs_per_prompt: _Count = 1
    """Results of one request, each from noise of its own."""
    seed: Annotated[int, Range(minimum=0, maximum=2**63 - 1)] | None = None
    """Seed of the noise; `None` draws a seed."""
    sigmas: tuple[_Scale, ...] | None = None
    """Noise levels of the steps, which replace the schedule."""
    eta: _Share | None = None
    """Share of noise that each step adds again, of schedules that can."""
    boundary_ratio: _Share | None = None
    """Share of the time steps below which a second denoiser takes over."""
    max_sequence_length: _Count | None = None
    """Most tokens of the prompt; longer ones are cut."""
    extra_args: Mapping[str, object] = field(default_factory=dict)
    """Parameters that only the model knows, by name; layers are merged by key."""
