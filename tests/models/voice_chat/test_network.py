"""The torch networks against the graph that their weights come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stagemesh.models.voice_chat._sources import ONNX_FILE, VOICE, source_file
from stagemesh.models.voice_chat.net_code2wav import load_code2wav
from stagemesh.models.voice_chat.net_talker import load_talker
from stagemesh.models.voice_chat.phonemes import encode, phonemize

pytestmark = pytest.mark.slow


def run_graph(ids_t: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return latents `[c, n]` and audio `[s]` of the published graph without any noise."""
    import onnx  # noqa: PLC0415
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415
    from onnx.reference.op_run import OpRun  # noqa: PLC0415

    class GatherElements(OpRun):  # type: ignore[misc]  # untyped base
        """The evaluator's own refuses data that is larger than the indices."""

        def _run(self, data: Any, indices: Any, axis: int) -> tuple[Any]:  # noqa: ANN401
            axis %= data.ndim
            extents = enumerate(indices.shape)
            cut = tuple(slice(None) if index == axis else slice(size) for index, size in extents)
            return (np.take_along_axis(data[cut], indices, axis=axis),)

    model = onnx.load(str(source_file(VOICE, ONNX_FILE)))
    decoder_input = next(n.input[0] for n in model.graph.node if n.name == "/dec/conv_pre/Conv")
    model.graph.output.append(onnx.helper.make_tensor_value_info(decoder_input, 1, None))
    feeds = {
        "input": np.array([ids_t], dtype=np.int64),
        "input_lengths": np.array([len(ids_t)], dtype=np.int64),
        "scales": np.array([0.0, 1.0, 0.0], dtype=np.float32),
    }
    audio, latent = ReferenceEvaluator(model, new_ops=[GatherElements]).run(None, feeds)
    return torch.from_numpy(latent[0]), torch.from_numpy(audio.reshape(-1))


def test_networks_equal_the_published_graph(checkpoint: Path) -> None:
    """Same frames, latents within 1e-4 and audio within 1e-4, noise switched off."""
    talker, facts = load_talker(checkpoint / "talker")
    code2wav, _ = load_code2wav(checkpoint / "code2wav")
    ids_t = encode(phonemize("Hi."), facts["phoneme_ids"])
    prior = talker.prior(torch.tensor(ids_t), torch.zeros(2, len(ids_t)), 1.0)
    latent_cn = talker.decode(prior.mean_cn)
    expected_cn, expected_s = run_graph(ids_t)
    assert latent_cn.shape == expected_cn.shape
    torch.testing.assert_close(latent_cn, expected_cn, atol=1e-4, rtol=0)
    torch.testing.assert_close(code2wav(latent_cn[None])[0], expected_s, atol=1e-4, rtol=0)


def test_windows_need_no_more_than_twelve_frames_of_context(checkpoint: Path) -> None:
    """With 11 frames a window equals the whole decode; with 4 it does not."""
    code2wav, _ = load_code2wav(checkpoint / "code2wav")
    latent_bcn = torch.randn(1, 192, 60, generator=torch.Generator().manual_seed(0))
    whole_s = code2wav(latent_bcn)[0, 25 * 256 : 35 * 256]
    for context, equal in ((11, True), (4, False)):
        window_bcn = latent_bcn[..., 25 - context : 35 + context]
        error = (code2wav(window_bcn, context, context)[0] - whole_s).abs().max().item()
        assert (error < 1e-5) is equal
