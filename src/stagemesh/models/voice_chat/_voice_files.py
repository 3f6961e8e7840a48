"""Writes `talker/` and `code2wav/`: the packaged VITS voice as weights of the two networks.

The voice is an ONNX graph. Most initialisers keep the names of the training code (`enc_p.`, `dp.`,
`flow.`, `dec.`); what the exporter folded away is found by the name of the node that reads it: the
flow's convolutions (weight normalisation folded), the symbol embedding, and the scale of the
duration flow's affine step (stored as `exp(-log_scale)`). Every tensor that is read must be used: a
graph with other names is refused. Source of the network: VITS, Kim et al. 2021,
https://arxiv.org/abs/2106.06103.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stagemesh.models.voice_chat._sources import (
    ONNX_CONFIG_FILE,
    ONNX_FILE,
    VOICE,
    BadSourceError,
    source_file,
)

if TYPE_CHECKING:
    import torch

HOP: Final = 256
"""Waveform samples of one latent frame: the product of the upsampling rates."""

_RENAMES: Final[tuple[tuple[str, str], ...]] = (
    (r"enc_p\.emb\.", "text_encoder.embed_tokens."),
    (r"enc_p\.proj\.", "text_encoder.project."),
    (
        r"enc_p\.encoder\.attn_layers\.(\d+)\.conv_([qkv])\.",
        r"text_encoder.encoder.layers.\1.attention.\2_proj.",
    ),
    (
        r"enc_p\.encoder\.attn_layers\.(\d+)\.conv_o\.",
        r"text_encoder.encoder.layers.\1.attention.out_proj.",
    ),
    (r"enc_p\.encoder\.attn_layers\.(\d+)\.emb_", r"text_encoder.encoder.layers.\1.attention.emb_"),
    (r"enc_p\.encoder\.norm_layers_1\.(\d+)\.", r"text_encoder.encoder.layers.\1.layer_norm."),
    (
        r"enc_p\.encoder\.norm_layers_2\.(\d+)\.",
        r"text_encoder.encoder.layers.\1.final_layer_norm.",
    ),
    (r"enc_p\.encoder\.ffn_layers\.(\d+)\.", r"text_encoder.encoder.layers.\1.feed_forward."),
    (r"dp\.(pre|proj)\.", r"durations.conv_\1."),
    (r"dp\.convs\.", "durations.conv_dds."),
    (r"dp\.flows\.0\.m$", "durations.affine.translate"),
    (r"dp\.flows\.0\.logs$", "durations.affine.log_scale"),
    (r"dp\.flows\.(\d+)\.(pre|proj)\.", r"durations.flows.<\1>.conv_\2."),
    (r"dp\.flows\.(\d+)\.convs\.", r"durations.flows.<\1>.conv_dds."),
    (r"flow\.flows\.(\d+)\.(pre|post)\.", r"flow.flows.<\1>.conv_\2."),
    (r"flow\.flows\.(\d+)\.enc\.", r"flow.flows.<\1>.wavenet."),
)
_TAIL_RENAMES: Final[tuple[tuple[str, str], ...]] = (
    (".gamma", ".weight"),
    (".beta", ".bias"),
    (".convs_sep.", ".convs_dilated."),
    (".convs_1x1.", ".convs_pointwise."),
)


def write_voice(talker: Path, code2wav: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write both folders; return the configurations of the talker and of code2wav.

    Raises `MissingSourceError` or `BadSourceError`.
    """
    from safetensors.torch import save_file  # noqa: PLC0415

    voice = json.loads(source_file(VOICE, ONNX_CONFIG_FILE).read_text(encoding="utf-8"))
    weights = _graph_weights(source_file(VOICE, ONNX_FILE))
    configs = _talker_config(voice), _code2wav_config(voice)
    talker_weights = {_talker_name(k): v for k, v in weights.items() if not k.startswith("dec.")}
    for name, tensor in talker_weights.items():
        if re.search(r"attention\.\w+_proj\.weight$", name):
            talker_weights[name] = tensor.squeeze(-1)  # 1x1 convolutions there, linear layers here
    decoder_weights = {
        k.removeprefix("dec."): v for k, v in weights.items() if k.startswith("dec.")
    }
    for folder, tensors, config in zip(
        (talker, code2wav), (talker_weights, decoder_weights), configs, strict=True
    ):
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
        text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")
    return configs


def _graph_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the float weights of the graph under the names of the training code."""
    import onnx  # noqa: PLC0415  # only an assembly needs it
    import torch  # noqa: PLC0415
    from onnx import numpy_helper  # noqa: PLC0415

    model = onnx.load(str(path))
    stored = {item.name: item for item in model.graph.initializer}

    def read(name: str) -> torch.Tensor:
        if name not in stored:
            raise BadSourceError(VOICE, f"holds a voice without the weight `{name}`")
        return torch.tensor(numpy_helper.to_array(stored[name]))

    weights = {
        name: read(name) for name in stored if re.match(r"(enc_p|dp|flow|dec)\.", name) is not None
    }
    for name, initialiser in _folded(model.graph.node):
        weights[name] = read(initialiser)
    weights["dp.flows.0.logs"] = -torch.log(read("/dp/flows.0/Exp_output_0"))
    return weights


def _folded(nodes: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401  # ONNX protobuf, untyped
    """Yield (training name, initialiser) of the weights that lost their names in the export."""
    pattern = re.compile(r"/flow/flows\.(\d+)/enc/(in_layers|res_skip_layers)\.(\d+)/Conv")
    for node in nodes:
        if node.name == "/enc_p/emb/Gather":
            yield "enc_p.emb.weight", node.input[0]
        elif (match := pattern.fullmatch(node.name)) is not None:
            flow, kind, layer = match.groups()
            yield f"flow.flows.{flow}.enc.{kind}.{layer}.weight", node.input[1]


def _talker_name(name: str) -> str:
    for pattern, replacement in _RENAMES:
        renamed, count = re.subn("^" + pattern, replacement, name)
        if count:
            break
    else:
        raise BadSourceError(VOICE, f"holds a voice with the unknown weight `{name}`")
    for old, new in _TAIL_RENAMES:
        renamed = renamed.replace(old, new)
    # the training code numbers the flips between two flows too; the duration flow's affine is 0
    first = 3 if name.startswith("dp.") else 0
    return re.sub(r"<(\d+)>", lambda match: str((int(match[1]) - first) // 2), renamed)


def _talker_config(voice: Mapping[str, Any]) -> dict[str, Any]:
    rate = voice["audio"]["sample_rate"]
    inference = voice["inference"]
    return {
        "architectures": ["VoiceChatTalker"],
        "model_type": "voice_chat_talker",
        "dtype": "float32",
        "vocab_size": voice["num_symbols"],
        "hidden_size": 192,
        "intermediate_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 2,
        "window_size": 4,
        "flow_size": 192,
        "num_flows": 4,
        "num_wavenet_layers": 4,
        "num_duration_flows": 3,
        "sampling_rate": rate,
        "hop_length": HOP,
        "frames_per_second": rate / HOP,
        "noise_scale": inference["noise_scale"],
        "noise_scale_duration": inference["noise_w"],
        "length_scale": inference["length_scale"],
        "phoneme_ids": {symbol: ids[0] for symbol, ids in voice["phoneme_id_map"].items()},
    }


def _code2wav_config(voice: Mapping[str, Any]) -> dict[str, Any]:
    rate = voice["audio"]["sample_rate"]
    return {
        "architectures": ["VoiceChatCode2Wav"],
        "model_type": "voice_chat_code2wav",
        "dtype": "float32",
        "latent_size": 192,
        "hidden_size": 256,
        "upsample_rates": [8, 8, 4],
        "upsample_kernel_sizes": [16, 16, 8],
        "resblock_kernel_sizes": [3, 5, 7],
        "resblock_dilation_sizes": [[1, 2], [2, 6], [3, 12]],
        "leaky_relu_slope": 0.1,
        "sampling_rate": rate,
        "hop_length": HOP,
        "frames_per_second": rate / HOP,
    }
