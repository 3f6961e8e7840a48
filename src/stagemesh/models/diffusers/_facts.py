"""Facts of the stages of a checkpoint of `diffusers`, whole or split."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from stagemesh.models._diffusers.autoencoders import Autoencoder
from stagemesh.models._diffusers.denoisers import CLASS_KEY, Denoiser
from stagemesh.models._diffusers.numbers import flag
from stagemesh.models._turns import ONE_DENOISER_LACKS
from stagemesh.models.diffusers._classes import CLASSES, PipelineClass
from stagemesh.models.diffusers._components import DECODERS, DENOISERS, ENCODERS
from stagemesh.models.diffusers._parts import Parts, read_parts, weights_of
from stagemesh.models.diffusers._uncut import (
    texts_of,
    uncut_decoder,
    uncut_encoders,
    uncut_network,
)
from stagemesh.spec.cost import Part
from stagemesh.spec.facts import Canvas, StageFacts
from stagemesh.spec.pipeline import CheckpointConfigs, JsonObject

_DENOISER: Final = {"denoiser": DENOISERS}
_ALL: Final = {**_DENOISER, "text encoder": ENCODERS, "VAE": DECODERS}


def whole(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    """Facts of the one stage that holds all components: those of the network that denoises."""
    parts = read_parts(configs, _DENOISER)
    facts = _denoising(configs, parts, _components(parts))
    texts = [parts.encoders[name] for name in texts_of(parts.encoders)]
    heads = _largest(texts).num_attention_heads if texts else None
    uncut = {**uncut_network(configs, parts.denoisers), **uncut_decoder(configs, parts.decoders)}
    uncut |= uncut_encoders(configs, texts_of(parts.encoders), Part.ENCODERS)
    return {"dit": replace(facts, num_encoder_heads=heads, uncut=uncut)}


def split(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    """Facts of text encoder, denoiser and VAE as stages of their own."""
    parts = read_parts(configs, _ALL)
    known = _components(parts)
    decoders = {name: known[name] for name in parts.decoders}
    denoising = {name: known[name] for name in (*parts.denoisers, *parts.others)}
    return {
        "text_encoder": _encoding(configs, parts),
        "denoiser": replace(
            _denoising(configs, parts, denoising),
            output_pixels=None,
            output_frames=None,
            uncut=uncut_network(configs, parts.denoisers),
        ),
        "vae": replace(
            _weighed(_decoding(configs, parts, decoders), configs, decoders),
            uncut=uncut_decoder(configs, parts.decoders),
        ),
    }


def _components(parts: Parts) -> dict[str, StageFacts]:
    """What is known of each network, the denoisers first."""
    return {
        **{name: each.facts for name, each in parts.denoisers.items()},
        **parts.encoders,
        **{
            name: StageFacts(num_parameters=each.num_parameters)
            for name, each in parts.decoders.items()
        },
        **{name: StageFacts() for name in parts.others},
    }


def _total(components: Iterable[StageFacts]) -> int | None:
    """Weights of several networks; `None` as soon as those of one are not known."""
    sizes = [each.num_parameters for each in components]
    known = [size for size in sizes if size is not None]
    return sum(known) if sizes and len(known) == len(sizes) else None


def _weighed(
    facts: StageFacts, configs: CheckpointConfigs, components: Mapping[str, StageFacts]
) -> StageFacts:
    weights = weights_of(configs, components)
    return replace(
        facts,
        component_bytes=weights.component_bytes,
        unweighed=tuple(name for name in components if name not in weights.component_bytes),
        weight_bytes=weights.weight_bytes,
        weight_dtype=facts.weight_dtype or weights.dtype,
    )


def _encoding(configs: CheckpointConfigs, parts: Parts) -> StageFacts:
    """Facts of the largest encoder, whose heads say how often all of them can be cut.

    All are weighed.
    """
    encoders = parts.encoders
    facts = replace(
        _largest(encoders.values()),
        num_parameters=_total(encoders.values()),
        uncut=uncut_encoders(configs, encoders, Part.WIDTH, Part.LAYERS),
    )
    return _weighed(facts, configs, encoders)


def _largest(networks: Iterable[StageFacts]) -> StageFacts:
    return max(networks, key=lambda each: each.num_parameters or 0)


def _decoding(
    configs: CheckpointConfigs, parts: Parts, decoders: Mapping[str, StageFacts]
) -> StageFacts:
    """Facts of what decodes: how large, and what a picture or a clip of it has."""
    canvas = _canvas(parts, _class(configs.root))
    size = None if canvas is None else canvas.size
    return StageFacts(
        num_experts=0,
        num_parameters=_total(decoders.values()),
        guidance=False,
        output_pixels=None if size is None else math.prod(size),
        output_frames=None if size is None else size[0],
        canvas=canvas,
    )


def _class(root: JsonObject) -> PipelineClass | None:
    return CLASSES.get(str(root.get(CLASS_KEY)))


def _denoising(
    configs: CheckpointConfigs, parts: Parts, components: Mapping[str, StageFacts]
) -> StageFacts:
    root = configs.root
    denoisers = tuple(parts.denoisers.values())
    known = _class(root)
    sequence, text = _lengths(parts, known)
    canvas = _canvas(parts, known)
    size = None if canvas is None else canvas.size
    facts = replace(
        denoisers[0].facts,
        num_parameters=_total(each.facts for each in denoisers),
        sequence_length=sequence,
        text_length=text,
        output_pixels=None if size is None else math.prod(size),
        output_frames=None if size is None else size[0],
        canvas=canvas,
        guidance=_guidance(root, denoisers, known),
        lacks=ONE_DENOISER_LACKS if len(denoisers) == 1 else {},
    )
    return _weighed(facts, configs, components)


def _guidance(
    root: JsonObject, denoisers: Collection[Denoiser], known: PipelineClass | None
) -> bool | None:
    """Whether guidance costs a second pass: never where it was distilled into the network."""
    if any(each.is_distilled for each in denoisers) or flag(root, "is_distilled"):
        return False
    return None if known is None else known.guided


def _lengths(parts: Parts, known: PipelineClass | None) -> tuple[int | None, int | None]:
    """Tokens of one forward at the model's own size, and those of the prompt among them."""
    network, canvas = _first(parts)[0], _canvas(parts, known)
    text: int | None = 0
    if network.joins_text:
        text = network.own_text_length or (None if known is None else known.text_length)
    if network.patch is None:
        return None, None
    tokens = None if canvas is None else canvas.tokens(canvas.size)
    return (None if tokens is None or text is None else tokens + text), text


def _canvas(parts: Parts, known: PipelineClass | None) -> Canvas | None:
    """The model's own size of picture or clip in pixels, and how they become tokens."""
    network, vae = _first(parts)
    if vae is None or vae.pixels is None:
        return None
    size = None if known is None else known.size
    if network.own_size is not None:
        frames, rows, columns = network.own_size
        size = frames, rows * vae.pixels, columns * vae.pixels
    if size is None:
        return None
    return Canvas(
        size=size,
        cell=(vae.frames, vae.pixels, vae.pixels),
        patch=network.patch,
        pictures=1 + (0 if known is None else known.pictures),
    )


def _first(parts: Parts) -> tuple[Denoiser, Autoencoder | None]:
    """The denoiser and the VAE that say how large things are."""
    return next(iter(parts.denoisers.values())), next(iter(parts.decoders.values()), None)
