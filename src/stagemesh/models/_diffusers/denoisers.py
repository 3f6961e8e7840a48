"""Denoisers: what the numbers in the configuration of a class of `diffusers` amount to.

The number of weights is that of the matrices: biases, norms and tables are left out, less than a
percent of a published size. In the formulas `d` is the width (heads x head width), `f` the inner
width of a feed-forward block (`4 d` unless said otherwise), and every block of a kind is counted
`layers` times. What lies outside of the blocks is added: entry, exit, and the embeddings of time,
prompt and guidance.

    double block            20 d^2 + 4 d f    two streams: attention 8, modulation 12, two
                                              feed-forward blocks
    single block             7 d^2 + 2 d f    attention 3, exit 1, modulation 3
    cross-attention block    8 d^2 + 2 d f    attention to itself 4, to the prompt 4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from stagemesh.models._diffusers.numbers import (
    MissingNumberError,
    flag,
    heads,
    length,
    number,
    numbers,
    ratio,
)
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import JsonObject

_TIME: Final = 256
"""Width of the sine embedding of a time step."""
CLASS_KEY: Final = "_class_name"
"""Key of the class in the file of a component of `diffusers`."""


@frozen
class Denoiser:
    """What the configuration of one denoiser says."""

    facts: StageFacts
    """Of its network."""
    patch: tuple[int, int, int] | None = None
    """Frames, rows and columns of the latent that make one token; `None` where nothing is known."""
    joins_text: bool = False
    """Whether attention joins the tokens of the prompt to the others."""
    is_distilled: bool = False
    """Whether the strength of guidance is an input, so that no second pass is run for it."""
    own_size: tuple[int, int, int] | None = None
    """Frames, latent rows and latent columns that it was made for, where the file tells them."""
    own_text_length: int | None = None
    """Tokens of the prompt, where the file tells them."""


def denoiser(config: JsonObject) -> Denoiser:
    """Read the configuration of a denoiser; of a class that is not known the heads at most.

    Raises `TypeError` naming the key when a value is no usable number.
    """
    read = _READERS.get(str(config.get(CLASS_KEY)))
    if read is None:
        return Denoiser(facts=_of_any(config))
    try:
        return read(config)
    except MissingNumberError:
        return Denoiser(facts=_of_any(config))


def _of_any(config: JsonObject) -> StageFacts:
    """The heads, by the keys that the classes of `diffusers` share; lists are those of a UNet."""
    try:
        count, width = heads(config, "num_attention_heads"), number(config, "attention_head_dim")
    except (MissingNumberError, TypeError):
        return StageFacts()
    return StageFacts(num_attention_heads=count, num_kv_heads=count, head_dim=width)


@frozen
class _Shape:
    """The numbers that every known class has."""

    count: int
    width: int

    @property
    def d(self) -> int:
        """Width of the residual stream."""
        return self.count * self.width

    def facts(self, *, layers: int, inner: int, weights: int, sums: int, output: int) -> StageFacts:
        """Facts of a network of dense blocks with `sums` exits into the stream.

        The two streams of a double block have one exit together: each token goes through one.
        """
        return StageFacts(
            num_attention_heads=self.count,
            num_kv_heads=self.count,
            num_layers=layers,
            num_experts=0,
            hidden_size=self.d,
            intermediate_size=inner,
            head_dim=self.width,
            num_parameters=weights,
            num_row_linears=sums,
            output_size=output,
        )


def _shape(config: JsonObject) -> _Shape:
    return _Shape(
        count=heads(config, "num_attention_heads"), width=number(config, "attention_head_dim")
    )


def _double(d: int, f: int) -> int:
    return 20 * d * d + 4 * d * f


def _single(d: int, f: int) -> int:
    return 7 * d * d + 2 * d * f


def _crossing(d: int, f: int) -> int:
    return 8 * d * d + 2 * d * f


def _embedding(entry: int, d: int) -> int:
    """Two layers that turn an embedding into a vector of the network's width."""
    return entry * d + d * d


def _square_patch(config: JsonObject) -> tuple[int, int, int]:
    """The patch of a class whose keys are `patch_size` and, for clips, `patch_size_t`."""
    side = number(config, "patch_size")
    return (number(config, "patch_size_t", 1), side, side)


def _exit(config: JsonObject, patch: tuple[int, int, int]) -> int:
    """Channels that leave the network for each token."""
    frames, rows, columns = patch
    channels = number(config, "out_channels", number(config, "in_channels"))
    return channels * frames * rows * columns


def _qwen_image(config: JsonObject) -> Denoiser:
    """Double blocks; the patches are packed before they enter."""
    shape, layers = _shape(config), number(config, "num_layers")
    d, f = shape.d, 4 * shape.d
    patch = _square_patch(config)
    entry = number(config, "in_channels") + number(config, "joint_attention_dim")
    output = _exit(config, patch)
    outside = d * (entry + output + 2 * d)  # the last is the modulation at the exit
    weights = layers * _double(d, f) + outside + _embedding(_TIME, d)
    return Denoiser(
        facts=shape.facts(layers=layers, inner=f, weights=weights, sums=2 * layers, output=output),
        patch=patch,
        joins_text=True,
        is_distilled=flag(config, "guidance_embeds"),
    )


def _flux(config: JsonObject) -> Denoiser:
    """Double, then single blocks; the pipeline packs 2 x 2 cells of the latent into a token."""
    shape = _shape(config)
    layers, singles = number(config, "num_layers"), number(config, "num_single_layers", least=0)
    d, f = shape.d, 4 * shape.d
    is_distilled = flag(config, "guidance_embeds")
    channels = number(config, "in_channels")
    output = number(config, "out_channels", channels)
    outside = d * (channels + number(config, "joint_attention_dim") + output + 2 * d)
    embeddings = (1 + is_distilled) * _embedding(_TIME, d)
    embeddings += _embedding(number(config, "pooled_projection_dim"), d)
    weights = layers * _double(d, f) + singles * _single(d, f) + outside + embeddings
    return Denoiser(
        facts=shape.facts(
            layers=layers + singles,
            inner=f,
            weights=weights,
            sums=2 * layers + singles,
            output=output,
        ),
        patch=(1, 2, 2),
        joins_text=True,
        is_distilled=is_distilled,
    )


def _flux2(config: JsonObject) -> Denoiser:
    """Like FLUX, with gated feed-forward blocks and one modulation for all blocks of a kind.

    Double block `8 d^2 + 6 d f`, single block `4 d^2 + 3 d f`, modulations `15 d^2`.
    """
    shape = _shape(config)
    layers, singles = number(config, "num_layers"), number(config, "num_single_layers", least=0)
    d, f = shape.d, int(shape.d * ratio(config, "mlp_ratio", 3.0))
    is_distilled = flag(config, "guidance_embeds")
    channels = number(config, "in_channels")
    output = number(config, "out_channels", channels)
    outside = d * (channels + number(config, "joint_attention_dim") + output + (2 + 15) * d)
    embedding = _embedding(number(config, "timestep_guidance_channels", _TIME), d)
    weights = (
        layers * (8 * d * d + 6 * d * f)
        + singles * (4 * d * d + 3 * d * f)
        + outside
        + (1 + is_distilled) * embedding
    )
    return Denoiser(
        facts=shape.facts(
            layers=layers + singles,
            inner=f,
            weights=weights,
            sums=2 * layers + singles,
            output=output,
        ),
        patch=(1, 2, 2),
        joins_text=True,
        is_distilled=is_distilled,
    )


def _wan(config: JsonObject) -> Denoiser:
    """Cross-attention blocks; a picture to start from adds two matrices to each of them."""
    shape, layers = _shape(config), number(config, "num_layers")
    d, f = shape.d, number(config, "ffn_dim")
    patch = numbers(config, "patch_size", (1, 2, 2))
    if len(patch) != 3:  # noqa: PLR2004  frames, rows, columns
        message = f"`patch_size` must have `3` numbers, got `{len(patch)}`"
        raise TypeError(message)
    frames, rows, columns = patch
    output = _exit(config, (frames, rows, columns))
    picture = number(config, "added_kv_proj_dim", 0, least=0)
    outside = (
        d * number(config, "in_channels") * frames * rows * columns
        + d * output
        + _embedding(number(config, "text_dim", 4096), d)
        + _embedding(number(config, "freq_dim", _TIME), d)
        + 6 * d * d
    )
    weights = layers * (_crossing(d, f) + 2 * d * picture) + outside
    return Denoiser(
        facts=shape.facts(layers=layers, inner=f, weights=weights, sums=3 * layers, output=output),
        patch=(frames, rows, columns),
    )


def _z_image(config: JsonObject) -> Denoiser:
    """One stream of gated blocks: `4 d^2 + 3 d f`, `f = 8/3 d`, and modulation by a narrow vector.

    Two short stacks in front refine picture and prompt; the former has no modulation.
    """
    count, d = heads(config, "n_heads"), number(config, "dim")
    layers, refiners = number(config, "n_layers"), number(config, "n_refiner_layers", 2, least=0)
    groups, f = heads(config, "n_kv_heads", count), int(d / 3 * 8)
    narrow = min(d, _TIME)
    block = 2 * d * d + 2 * d * d * groups // count + 3 * d * f
    modulation = 4 * d * narrow
    side, frames = numbers(config, "all_patch_size")[0], numbers(config, "all_f_patch_size")[0]
    cell = number(config, "in_channels") * frames * side * side
    weights = (
        layers * (block + modulation)
        + refiners * (2 * block + modulation)
        + d * (2 * cell + number(config, "cap_feat_dim") + narrow)
    )
    facts = _Shape(count=count, width=d // count).facts(
        layers=layers, inner=f, weights=weights, sums=2 * (layers + refiners), output=cell
    )
    return Denoiser(
        facts=replace(facts, num_kv_heads=groups, hidden_size=d),
        patch=(frames, side, side),
        joins_text=True,
    )


def _sd3(config: JsonObject) -> Denoiser:
    """Double blocks, the last one without an exit for the prompt; some attend twice to the picture.

    The last block lacks `5 d^2 + 2 d f`; a second attention adds `7 d^2`.
    """
    shape, layers = _shape(config), number(config, "num_layers")
    d, f = shape.d, 4 * shape.d
    patch = _square_patch(config)
    frames, rows, columns = patch
    twice = length(config, "dual_attention_layers")
    output = _exit(config, patch)
    entry = number(config, "in_channels") * frames * rows * columns
    outside = d * (entry + number(config, "joint_attention_dim") + output + 2 * d)
    embeddings = _embedding(_TIME, d) + _embedding(number(config, "pooled_projection_dim"), d)
    weights = layers * _double(d, f) - (5 * d * d + 2 * d * f) + twice * 7 * d * d
    side = number(config, "sample_size", 128)
    return Denoiser(
        facts=shape.facts(
            layers=layers,
            inner=f,
            weights=weights + outside + embeddings,
            sums=2 * layers + twice,
            output=output,
        ),
        patch=patch,
        joins_text=True,
        own_size=(1, side, side),
    )


def _hunyuan_video(config: JsonObject) -> Denoiser:
    """Double, then single blocks; a short stack in front refines the prompt: `6 d^2 + 2 d f`."""
    shape = _shape(config)
    layers, singles = number(config, "num_layers"), number(config, "num_single_layers", least=0)
    d, f = shape.d, int(shape.d * ratio(config, "mlp_ratio", 4.0))
    is_distilled = flag(config, "guidance_embeds")
    patch = _square_patch(config)
    frames, rows, columns = patch
    text = number(config, "text_embed_dim")
    output = _exit(config, patch)
    outside = d * (
        number(config, "in_channels") * frames * rows * columns
        + 2 * text
        + d  # the prompt, token by token and pooled
        + output
        + 2 * d
    )
    refiners = number(config, "num_refiner_layers", 2, least=0) * (6 * d * d + 2 * d * f)
    embeddings = (2 + is_distilled) * _embedding(_TIME, d)
    embeddings += _embedding(number(config, "pooled_projection_dim"), d)
    weights = layers * _double(d, f) + singles * _single(d, f) + refiners + outside + embeddings
    return Denoiser(
        facts=shape.facts(
            layers=layers + singles,
            inner=f,
            weights=weights,
            sums=2 * layers + singles,
            output=output,
        ),
        patch=patch,
        joins_text=True,
        is_distilled=is_distilled,
    )


def _crossing_stack(config: JsonObject) -> Denoiser:
    """LTX-Video and PixArt: cross-attention blocks under one modulation of `6 d^2`."""
    shape, layers = _shape(config), number(config, "num_layers")
    d, f = shape.d, 4 * shape.d
    patch = _square_patch(config)
    frames, rows, columns = patch
    output = _exit(config, patch)
    outside = (
        d * number(config, "in_channels") * frames * rows * columns
        + d * output
        + _embedding(number(config, "caption_channels"), d)
        + _embedding(_TIME, d)
        + 6 * d * d
    )
    weights = layers * _crossing(d, f) + outside
    side = config.get("sample_size")
    return Denoiser(
        facts=shape.facts(layers=layers, inner=f, weights=weights, sums=3 * layers, output=output),
        patch=patch,
        own_size=None if side is None else (1, *2 * (number(config, "sample_size"),)),
    )


def _cogvideox(config: JsonObject) -> Denoiser:
    """One stream of `4 d^2 + 2 d f` with two modulations of `6 d t`, `t` the width of time."""
    shape, layers = _shape(config), number(config, "num_layers")
    d, f, time = shape.d, 4 * shape.d, number(config, "time_embed_dim", 512)
    patch = _square_patch(config)
    frames, rows, columns = patch
    output = _exit(config, patch)
    entry = number(config, "in_channels") * frames * rows * columns
    outside = d * (entry + number(config, "text_embed_dim", 4096) + output + 3 * time)
    weights = layers * (4 * d * d + 2 * d * f + 12 * d * time) + outside
    return Denoiser(
        facts=shape.facts(layers=layers, inner=f, weights=weights, sums=2 * layers, output=output),
        patch=patch,
        joins_text=True,
        own_size=(
            number(config, "sample_frames", 49),
            number(config, "sample_height", 60),
            number(config, "sample_width", 90),
        ),
        own_text_length=number(config, "max_text_seq_length", 226),
    )


_Reader: TypeAlias = Callable[[JsonObject], Denoiser]

_READERS: Final[Mapping[str, _Reader]] = {
    "QwenImageTransformer2DModel": _qwen_image,
    "FluxTransformer2DModel": _flux,
    "Flux2Transformer2DModel": _flux2,
    "WanTransformer3DModel": _wan,
    "ZImageTransformer2DModel": _z_image,
    "SD3Transformer2DModel": _sd3,
    "HunyuanVideoTransformer3DModel": _hunyuan_video,
    "LTXVideoTransformer3DModel": _crossing_stack,
    "PixArtTransformer2DModel": _crossing_stack,
    "CogVideoXTransformer3DModel": _cogvideox,
}
"""Readers by class."""
KNOWN_DENOISERS: Final = tuple(_READERS)
"""Classes whose configuration is understood."""
