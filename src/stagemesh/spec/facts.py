"""What a checkpoint says about the network of one stage, to check layouts before loading."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from stagemesh.spec.frozen import frozen


@frozen
class WeightFiles:
    """What the weight files of one folder of a checkpoint amount to."""

    num_bytes: int
    """Bytes of all of them."""
    dtype: str | None = None
    """Type of most of the weights, a key of `payload.DTYPE_BYTES`; `None` where it is not told."""
    is_present: bool = True
    """False where an index tells their size and none of them is there."""


@frozen
class Canvas:
    """How large a denoiser's pictures or clips are, and what those of another size come to.

    Sizes are frames, height and width; a frame counts as one where they are pictures.
    """

    size: tuple[int, int, int]
    """The model's own, in pixels."""
    cell: tuple[int, int, int]
    """Frames, rows and columns of it that become one cell of the latent; the first frame is one
    of its own."""
    patch: tuple[int, int, int] | None = None
    """Cells that make one token; `None` where it is not known, or nothing is denoised."""
    pictures: int = 1
    """Pictures or clips whose tokens one forward has: the result, and those that are edited."""

    def tokens(self, size: tuple[int, int, int]) -> int | None:
        """Tokens of one forward besides those of the prompt."""
        if self.patch is None:
            return None
        sides = zip(self._cells(size), self.patch, strict=True)
        return self.pictures * math.prod(-(-cells // cut) for cells, cut in sides)

    def _cells(self, size: tuple[int, int, int]) -> tuple[int, int, int]:
        frames, height, width = size
        each, rows, columns = self.cell
        return (frames - 1) // each + 1, max(height // rows, 1), max(width // columns, 1)


@frozen
class StageFacts:
    """Facts about one stage's network. `None` means that the checkpoint does not say.

    A check that needs a missing fact is skipped, and the plan lists it as skipped.
    """

    num_attention_heads: int | None = None
    """Query heads of one attention layer."""
    num_kv_heads: int | None = None
    """Key and value heads of one attention layer."""
    num_encoder_heads: int | None = None
    """Query heads of the largest text encoder that a diffusion stage holds beside its denoiser."""
    num_layers: int | None = None
    """Repeated blocks."""
    num_experts: int | None = None
    """Routed experts of one MoE layer; `0` says that there are none."""
    hidden_size: int | None = None
    """Width of the residual stream."""
    intermediate_size: int | None = None
    """Inner width of the feed-forward block."""
    head_dim: int | None = None
    """Width of one attention head."""
    vocab_size: int | None = None
    """Rows of the embedding table."""
    moe_intermediate_size: int | None = None
    """Inner width of one expert."""
    num_experts_per_tok: int | None = None
    """Experts that one token visits."""
    max_model_len: int | None = None
    """Longest sequence in tokens."""
    sequence_length: int | None = None
    """Tokens of one forward of a denoiser at the model's own size of picture or clip."""
    text_length: int | None = None
    """Of those, tokens of the prompt that attention joins to the others; 0 when it does not."""
    keeps_text_whole: bool | None = None
    """Whether every rank of a cut sequence keeps the whole prompt, as joint attention can do."""
    num_row_linears: int | None = None
    """Linear layers of one forward whose output is a sum over ranks that share their input."""
    output_size: int | None = None
    """Numbers that a denoiser puts out for each token that is not text."""
    output_pixels: int | None = None
    """Pixels of one decoded picture or clip, all frames together."""
    output_frames: int | None = None
    """Frames of it; 1 for a picture."""
    canvas: Canvas | None = None
    """How those numbers come about, so that they can be told for another size."""
    num_parameters: int | None = None
    """Weights of the network, where they follow from its configuration; of all of its kind where a
    stage has several, such as the two denoisers of a clip."""
    component_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the weights of each component, such as `transformer` or `vae`: of its files, else
    those that follow from its configuration; components of unknown size are left out."""
    unweighed: tuple[str, ...] = ()
    """Components whose size is not known."""
    guidance: bool | None = None
    """Whether the model takes classifier-free guidance."""
    uncut: Mapping[str, str] = field(default_factory=dict)
    """What cannot be cut for want of a plan, by the value of its `Part`, each with the reason."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Stage fields and request parameters that nothing in this checkpoint can use although others
    of its pipeline could, each with the reason."""
    weight_bytes: int | None = None
    """Bytes of the stage's weight files."""
    weight_dtype: str | None = None
    """Type of the weights, a key of `payload.DTYPE_BYTES`."""
