"""Tiny networks of every class that has a plan, and an input for each, on any device.

Lengths of streams are primes that no width, number of heads or batch is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import nn

from stagemesh.parallel.rehearsal import Example
from stagemesh.spec.frozen import frozen

IMG: Final = 5 * 7
TXT: Final = 11
BATCH: Final = 2
HEADS: Final = 4
WIDTH: Final = 16
"""Of one head."""


@frozen
class Tiny:
    """One configuration of a class, and what a call of it is given."""

    name: str
    """The class."""
    config: Mapping[str, Any]
    """Its configuration."""
    inputs: Callable[[], dict[str, object]]
    """Makes the arguments of `forward` on the device that is the default one then."""
    lengths: Mapping[str, int]
    """Tokens of each stream."""
    library: str = "diffusers"
    """Where the class is."""
    config_name: str | None = None
    """Class of the configuration, for those of `transformers`."""

    def network(self) -> nn.Module:
        """Make the network on the default device."""
        library = importlib.import_module(self.library)
        kind = getattr(library, self.name)
        if self.config_name is None:
            made: nn.Module = kind(**self.config)
        else:
            made = kind(getattr(library, self.config_name)(**self.config))
        return made.eval()

    def on(self, device: str) -> Example:
        """Return it as an example on a device."""

        def network() -> nn.Module:
            with torch.device(device):
                return self.network()

        with torch.device(device):
            inputs = self.inputs()
        return Example(network=network, inputs=inputs, lengths=self.lengths)


def _tokens(length: int, width: int) -> torch.Tensor:
    return torch.randn(BATCH, length, width)


def _mask(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The second prompt is shorter."""
    mask = torch.ones(BATCH, TXT, dtype=dtype)
    mask[1, -4:] = 0
    return mask


def _time() -> torch.Tensor:
    return torch.full((BATCH,), 0.5)


_FLUX: Final = {
    "in_channels": 8,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": WIDTH,
    "num_attention_heads": HEADS,
    "joint_attention_dim": 24,
    "axes_dims_rope": (4, 4, 8),
}


def _flux(**more: object) -> dict[str, object]:
    return {
        **more,
        "hidden_states": _tokens(IMG, 8),
        "encoder_hidden_states": _tokens(TXT, 24),
        "pooled_projections": torch.randn(BATCH, 18),
        "timestep": _time(),
        "img_ids": torch.zeros(IMG, 3),
        "txt_ids": torch.zeros(TXT, 3),
    }


def _flux_controlled() -> dict[str, object]:
    added = [_tokens(IMG, HEADS * WIDTH)]
    return _flux(controlnet_block_samples=added, controlnet_single_block_samples=added)


def _flux2() -> dict[str, object]:
    return {
        "hidden_states": _tokens(IMG, 8),
        "encoder_hidden_states": _tokens(TXT, 24),
        "timestep": _time(),
        "guidance": _time(),
        "img_ids": torch.zeros(BATCH, IMG, 4),
        "txt_ids": torch.zeros(BATCH, TXT, 4),
    }


_QWEN: Final = {
    "in_channels": 8,
    "out_channels": 2,
    "num_layers": 2,
    "attention_head_dim": WIDTH,
    "num_attention_heads": HEADS,
    "joint_attention_dim": 24,
    "axes_dims_rope": (4, 4, 8),
}


def _qwen(shapes: list[tuple[int, int, int]], *, controlled: bool = False) -> dict[str, object]:
    return {
        "hidden_states": _tokens(IMG, 8),
        "encoder_hidden_states": _tokens(TXT, 24),
        "encoder_hidden_states_mask": _mask(torch.bool),
        "timestep": _time(),
        "img_shapes": [shapes] * BATCH,
        "controlnet_block_samples": [_tokens(IMG, HEADS * WIDTH)] if controlled else None,
    }


_WAN: Final = {
    "num_attention_heads": HEADS,
    "attention_head_dim": WIDTH,
    "in_channels": 4,
    "out_channels": 4,
    "text_dim": 24,
    "freq_dim": 32,
    "ffn_dim": 96,
    "num_layers": 2,
}


def _wan(text: int = TXT, **more: object) -> dict[str, object]:
    return {
        "hidden_states": torch.randn(BATCH, 4, 1, 10, 14),
        "encoder_hidden_states": _tokens(text, 24),
        "timestep": _time(),
        **more,
    }


def _wan_each() -> dict[str, object]:
    return _wan(timestep=torch.full((BATCH, IMG), 0.5))


def _wan_picture() -> dict[str, object]:
    return _wan(512, encoder_hidden_states_image=_tokens(13, 20))


_SD3: Final = {
    "sample_size": 16,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 2,
    "attention_head_dim": WIDTH,
    "num_attention_heads": HEADS,
    "joint_attention_dim": 24,
    "caption_projection_dim": HEADS * WIDTH,
    "pooled_projection_dim": 18,
    "pos_embed_max_size": 16,
    "qk_norm": "rms_norm",
}


def _sd3(*, controlled: bool = False) -> dict[str, object]:
    added = [_tokens(IMG, HEADS * WIDTH)] if controlled else None
    return {
        "block_controlnet_hidden_states": added,
        "hidden_states": torch.randn(BATCH, 4, 10, 14),
        "encoder_hidden_states": _tokens(TXT, 24),
        "pooled_projections": torch.randn(BATCH, 18),
        "timestep": _time(),
    }


def _pixart() -> dict[str, object]:
    return {
        "hidden_states": torch.randn(BATCH, 4, 10, 14),
        "encoder_hidden_states": _tokens(TXT, 24),
        "timestep": torch.ones(BATCH, dtype=torch.long),
        "encoder_attention_mask": _mask(),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }


_LTX: Final = {
    "in_channels": 8,
    "out_channels": 8,
    "num_attention_heads": HEADS,
    "attention_head_dim": WIDTH,
    "cross_attention_dim": HEADS * WIDTH,
    "num_layers": 2,
    "caption_channels": 24,
}


def _ltx(**more: object) -> dict[str, object]:
    return {
        "hidden_states": _tokens(IMG, 8),
        "encoder_hidden_states": _tokens(TXT, 24),
        "timestep": _time(),
        "encoder_attention_mask": _mask(),
        "num_frames": 1,
        "height": 5,
        "width": 7,
        **more,
    }


def _ltx_each() -> dict[str, object]:
    return _ltx(timestep=torch.full((BATCH, IMG), 0.5))


def _cogvideox() -> dict[str, object]:
    return {
        "hidden_states": torch.randn(BATCH, 1, 4, 10, 14),
        "encoder_hidden_states": _tokens(TXT, 24),
        "timestep": torch.ones(BATCH, dtype=torch.long),
        "image_rotary_emb": (torch.randn(IMG, WIDTH), torch.randn(IMG, WIDTH)),
    }


def _z_image(text: tuple[int, int]) -> dict[str, object]:
    return {
        "x": [torch.randn(4, 1, 10, 14) for _ in range(BATCH)],
        "t": _time(),
        "cap_feats": [torch.randn(length, 24) for length in text],
    }


def _z_image_omni() -> dict[str, object]:
    """Pictures of the request before the one that is made."""
    return {
        "x": [[torch.randn(4, 1, 10, 14), torch.randn(4, 1, 10, 14)] for _ in range(BATCH)],
        "t": _time(),
        "cap_feats": [[torch.randn(40, 24), torch.randn(40, 24)] for _ in range(BATCH)],
        "siglip_feats": [[torch.randn(3, 3, 20), None] for _ in range(BATCH)],
        "image_noise_mask": [[0, 1]] * BATCH,
    }


def _hunyuan() -> dict[str, object]:
    return {
        "hidden_states": torch.randn(BATCH, 4, 1, 10, 14),
        "timestep": _time(),
        "encoder_hidden_states": _tokens(TXT, 24),
        "encoder_attention_mask": _mask(torch.long),
        "pooled_projections": torch.randn(BATCH, 18),
        "guidance": _time(),
    }


def _words() -> dict[str, object]:
    return {"input_ids": torch.ones(BATCH, TXT, dtype=torch.long)}


def _embedded(**more: object) -> dict[str, object]:
    mask = torch.zeros(BATCH, 1, TXT, TXT)
    return {
        "inputs_embeds": _tokens(TXT, 64),
        "attention_mask": mask,
        "use_cache": False,
        **more,
    }


def _placed() -> dict[str, object]:
    return _embedded(position_ids=torch.ones(3, BATCH, TXT, dtype=torch.long))


_BOTH: Final = {"img": IMG, "txt": TXT}
_Z: Final = {
    "in_channels": 4,
    "dim": 80,
    "n_layers": 2,
    "n_refiner_layers": 1,
    "n_heads": 4,
    "n_kv_heads": 4,
    "cap_feat_dim": 24,
    "axes_dims": (4, 8, 8),
    "axes_lens": (128, 64, 64),
}
_T5: Final = {
    "d_model": 48,
    "d_kv": 8,
    "d_ff": 80,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 50,
    "use_cache": False,
}
_CLIP: Final = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "projection_dim": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DECODER: Final = {
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 50,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_QWEN_VISION: Final = {
    "depth": 1,
    "hidden_size": 32,
    "out_hidden_size": 64,
    "intermediate_size": 40,
    "num_heads": 4,
}
_PIXTRAL: Final = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 40,
}
_QWEN_TEXT: Final = {
    **_DECODER,
    "rope_parameters": {
        "rope_type": "default",
        "mrope_section": [2, 3, 3],
        "rope_theta": 10000.0,
    },
}


def _encoder(
    name: str,
    config: Mapping[str, Any],
    config_name: str,
    inputs: Callable[[], dict[str, object]] = _words,
) -> Tiny:
    return Tiny(
        name=name,
        config=config,
        inputs=inputs,
        lengths={},
        library="transformers",
        config_name=config_name,
    )


TINY: Final[Mapping[str, Tiny]] = {
    "flux": Tiny(
        name="FluxTransformer2DModel",
        config={**_FLUX, "pooled_projection_dim": 18},
        inputs=_flux,
        lengths=_BOTH,
    ),
    "flux_controlled": Tiny(
        name="FluxTransformer2DModel",
        config={**_FLUX, "pooled_projection_dim": 18},
        inputs=_flux_controlled,
        lengths=_BOTH,
    ),
    "flux2": Tiny(
        name="Flux2Transformer2DModel",
        config={
            **_FLUX,
            "axes_dims_rope": (4, 4, 4, 4),
            "timestep_guidance_channels": 32,
        },
        inputs=_flux2,
        lengths=_BOTH,
    ),
    "qwen_image": Tiny(
        name="QwenImageTransformer2DModel",
        config=_QWEN,
        inputs=partial(_qwen, [(1, 5, 7)]),
        lengths=_BOTH,
    ),
    "qwen_image_edit": Tiny(
        name="QwenImageTransformer2DModel",
        config={**_QWEN, "zero_cond_t": True},
        inputs=partial(_qwen, [(1, 5, 5), (1, 2, 5)], controlled=True),
        lengths=_BOTH,
    ),
    "wan": Tiny(name="WanTransformer3DModel", config=_WAN, inputs=_wan, lengths=_BOTH),
    "wan_each_token": Tiny(
        name="WanTransformer3DModel", config=_WAN, inputs=_wan_each, lengths=_BOTH
    ),
    "wan_picture": Tiny(
        name="WanTransformer3DModel",
        config={**_WAN, "image_dim": 20, "added_kv_proj_dim": HEADS * WIDTH},
        inputs=_wan_picture,
        lengths={"img": IMG, "txt": 512},
    ),
    "sd3": Tiny(name="SD3Transformer2DModel", config=_SD3, inputs=_sd3, lengths=_BOTH),
    "sd3_dual": Tiny(
        name="SD3Transformer2DModel",
        config={**_SD3, "dual_attention_layers": (0,)},
        inputs=partial(_sd3, controlled=True),
        lengths=_BOTH,
    ),
    "pixart": Tiny(
        name="PixArtTransformer2DModel",
        config={
            "num_attention_heads": HEADS,
            "attention_head_dim": WIDTH,
            "in_channels": 4,
            "out_channels": 8,
            "num_layers": 2,
            "cross_attention_dim": HEADS * WIDTH,
            "sample_size": 16,
            "caption_channels": 24,
            "use_additional_conditions": False,
        },
        inputs=_pixart,
        lengths=_BOTH,
    ),
    "ltx": Tiny(name="LTXVideoTransformer3DModel", config=_LTX, inputs=_ltx, lengths=_BOTH),
    "ltx_each_token": Tiny(
        name="LTXVideoTransformer3DModel", config=_LTX, inputs=_ltx_each, lengths=_BOTH
    ),
    "cogvideox": Tiny(
        name="CogVideoXTransformer3DModel",
        config={
            "num_attention_heads": HEADS,
            "attention_head_dim": WIDTH,
            "in_channels": 4,
            "out_channels": 4,
            "time_embed_dim": 40,
            "text_embed_dim": 24,
            "num_layers": 2,
            "sample_width": 14,
            "sample_height": 10,
            "sample_frames": 1,
            "max_text_seq_length": TXT,
            "use_rotary_positional_embeddings": True,
        },
        inputs=_cogvideox,
        lengths=_BOTH,
    ),
    "z_image": Tiny(
        name="ZImageTransformer2DModel",
        config=_Z,
        inputs=partial(_z_image, (TXT, 70)),
        lengths={"all": 160},
    ),
    "z_image_omni": Tiny(
        name="ZImageTransformer2DModel",
        config={**_Z, "siglip_feat_dim": 20},
        inputs=_z_image_omni,
        lengths={"all": 320},
    ),
    "hunyuan_video": Tiny(
        name="HunyuanVideoTransformer3DModel",
        config={
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": HEADS,
            "attention_head_dim": WIDTH,
            "num_layers": 1,
            "num_single_layers": 1,
            "num_refiner_layers": 1,
            "text_embed_dim": 24,
            "pooled_projection_dim": 18,
            "rope_axes_dim": (4, 4, 8),
        },
        inputs=_hunyuan,
        lengths=_BOTH,
    ),
    "t5": _encoder("T5EncoderModel", _T5, "T5Config"),
    "t5_gated": _encoder("T5EncoderModel", {**_T5, "feed_forward_proj": "gated-gelu"}, "T5Config"),
    "umt5": _encoder("UMT5EncoderModel", {**_T5, "feed_forward_proj": "gated-gelu"}, "UMT5Config"),
    "umt5_plain": _encoder("UMT5EncoderModel", {**_T5, "feed_forward_proj": "relu"}, "UMT5Config"),
    "clip": _encoder("CLIPTextModel", _CLIP, "CLIPTextConfig"),
    "clip_projection": _encoder("CLIPTextModelWithProjection", _CLIP, "CLIPTextConfig"),
    "qwen2_5_vl": _encoder(
        "Qwen2_5_VLForConditionalGeneration",
        {"text_config": _QWEN_TEXT, "vision_config": _QWEN_VISION},
        "Qwen2_5_VLConfig",
        _placed,
    ),
    "mistral3": _encoder(
        "Mistral3ForConditionalGeneration",
        {
            "text_config": {"model_type": "mistral", **_DECODER},
            "vision_config": {"model_type": "pixtral", **_PIXTRAL},
        },
        "Mistral3Config",
        _embedded,
    ),
    "qwen3": _encoder("Qwen3Model", _DECODER, "Qwen3Config", _embedded),
    "llama": _encoder("LlamaModel", _DECODER, "LlamaConfig", _embedded),
}
"""By a short name; several of one class where its configurations differ in what they have."""
