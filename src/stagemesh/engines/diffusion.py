"""The `diffusion` engine: denoising loops over published components. It plans only, so far.

The formulas of its memory and of one forward are in `docs/concepts/memory-and-cost.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.engines._budget import (
    USUAL_DTYPE,
    WORKSPACE_BYTES,
    activation_bytes,
    expert_bytes,
    given_dtype,
    sliced_bytes,
    stage_dtype,
    weight_bytes,
)
from stagemesh.engines._denoising import DiffusionParams
from stagemesh.engines._denoising_sizes import (
    DECODERS,
    SIZED_BY,
    is_decoder,
    requests,
    results,
    scaled,
)
from stagemesh.spec.cost import Forward, Part, Work
from stagemesh.spec.engine import EngineSpec, MemoryEstimate, MemoryInput
from stagemesh.spec.payload import DTYPE_BYTES
from stagemesh.spec.pipeline import ExecutionType

_DENOISERS: Final = ("transformer", "unet")
"""Beginnings of the names of components that the loop runs."""
_ENCODERS: Final = ("text_encoder",)
"""Beginnings of the names of components that read the prompt."""

_STEPS: Final = 30
"""Denoising steps of a nominal request."""
_BRANCHES: Final = 2
"""Forwards of a step under guidance."""
_INNER: Final = 4
"""Inner width of a feed-forward block over that of the stream, where it is not given."""

_PIXEL_NUMBERS: Final = 1024
"""Numbers that a decoder holds for each pixel at its peak: eight maps of 128 channels."""
_FRAMES_AT_ONCE: Final = 4
"""Frames that a decoder of clips makes of one latent frame, one after another."""
_TILE_PIXELS: Final = 512 * 512
_HALO: Final = 0.1
"""What a band of the picture holds of its neighbours, as a share of itself."""
_COLOURS: Final = 3


def _memory(given: MemoryInput) -> MemoryEstimate | None:
    """Weights of one rank, and the larger one of what denoising and decoding hold."""
    parts, width = _components(given), _element_bytes(given)
    if not parts:
        return None
    whole = sum(_named(parts, _DENOISERS).values())
    experts = expert_bytes(given, whole, width)
    kept = given.cut(Part.LAYERS) * given.cut(Part.SHARDS)
    denoiser = -(-sliced_bytes(given, whole, experts) // kept)
    others = [
        -(-size // (given.cut(Part.ENCODERS) if name.startswith(_ENCODERS) else 1))
        for name, size in parts.items()
        if not name.startswith(_DENOISERS)
    ]
    waits = given.stage_args.get("enable_cpu_offload") is True
    weights = max(denoiser, *others) if waits and others else denoiser + sum(others)
    decodes = bool(_named(parts, DECODERS)) or not others
    return MemoryEstimate(
        weights=weights,
        cache=0,
        workspace=WORKSPACE_BYTES
        + max(
            _denoising_bytes(given, width) + given.buffer_bytes,
            _decoding_bytes(given, width) if decodes else 0,
        ),
        context=given.context_bytes,
    )


def _forward(given: MemoryInput) -> Forward | None:
    """Describe one forward of the denoiser for one branch of all results that it makes together.

    A weight takes two operations a token, attention four for each pair of tokens and each number of
    a query. A stage that only decodes has a picture and no tokens.
    """
    facts, width = given.facts, _element_bytes(given)
    network = max(_named(_components(given), _DENOISERS).values(), default=0)
    tokens = facts.sequence_length
    if tokens is None:
        sized = is_decoder(given) and facts.output_pixels is not None
        return Forward(tokens=0, element_bytes=width, batch=requests(given)) if sized else None
    weights = sliced_bytes(given, network, expert_bytes(given, network, width))
    query = (facts.num_attention_heads or 0) * (facts.head_dim or 0) * (facts.num_layers or 0)
    attention = 4 * (tokens / results(given)) * query / given.cut(Part.WIDTH)
    flops = tokens * (2 * weights / width + attention) / given.cut(Part.TOKENS)
    branches = _BRANCHES if facts.guidance else 1
    return Forward(
        tokens=tokens,
        element_bytes=width,
        weight_bytes=network or None,
        work=Work(flops=flops, read_bytes=weights) if network else None,
        repeats=_STEPS * -(-branches // given.cut(Part.BRANCHES)),
        batch=requests(given),
    )


def _components(given: MemoryInput) -> Mapping[str, int]:
    """Bytes of each component; all of it is the denoiser where nothing else is known.

    Empty where the size of the denoiser is not known, unless the stage only decodes.
    """
    parts, network = _as_computed(given), weight_bytes(given, given_dtype(given))
    if (network is not None and is_decoder(given)) or _named(parts, _DENOISERS):
        return parts
    return {} if network is None else {**parts, _DENOISERS[0]: network}


def _as_computed(given: MemoryInput) -> Mapping[str, int]:
    """Bytes of the components that lie in files, in the type that they are computed in."""
    stored = DTYPE_BYTES[given.facts.weight_dtype or USUAL_DTYPE]
    width = _element_bytes(given)
    return {name: size * width // stored for name, size in given.facts.component_bytes.items()}


def _named(parts: Mapping[str, int], starts: tuple[str, ...]) -> Mapping[str, int]:
    return {name: size for name, size in parts.items() if name.startswith(starts)}


def _denoising_bytes(given: MemoryInput, width: int) -> int:
    """Activations of the rank with most tokens."""
    facts = given.facts
    inner = facts.intermediate_size or _INNER * (facts.hidden_size or 0)
    return activation_bytes(
        given,
        tokens=-(-(facts.sequence_length or 0) // given.cut(Part.TOKENS)),
        inner=-(-inner // given.cut(Part.WIDTH)),
        element_bytes=width,
    )


def _decoding_bytes(given: MemoryInput, width: int) -> int:
    """Peak of the decoder: the whole picture, a band of it, or one tile beside the result.

    All results are decoded together, or one by one beside those that are done.
    """
    pixels, frames = given.facts.output_pixels, given.facts.output_frames or 1
    if pixels is None:
        return 0
    number, count = _PIXEL_NUMBERS * width, results(given)
    one = pixels // count // frames * min(frames, _FRAMES_AT_ONCE)
    together = 1 if given.stage_args.get("vae_use_slicing") is True else count
    is_tiled = given.cut(Part.TILES) > 1 or given.stage_args.get("vae_use_tiling") is True
    kept = _COLOURS * pixels * width if is_tiled or together < count else 0
    if is_tiled:
        return min(one, _TILE_PIXELS) * together * number + kept
    bands, peak = given.cut(Part.BANDS), one * together * number
    return kept + (peak if bands == 1 else int(peak / bands * (1 + _HALO)))


def _element_bytes(given: MemoryInput) -> int:
    return DTYPE_BYTES[stage_dtype(given)]


ENGINE: Final = EngineSpec(
    name="diffusion",
    summary="denoising loops over published components; plans only, so far",
    runs=frozenset({ExecutionType.DIFFUSION}),
    default_for=frozenset({ExecutionType.DIFFUSION}),
    params=DiffusionParams,
    scale=scaled,
    sized_by=SIZED_BY,
    memory=_memory,
    forward=_forward,
    needs_weights=True,
    planning_only="the `diffusion` engine only plans so far",
)
