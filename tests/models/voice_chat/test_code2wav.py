"""code2wav: windows put together are the waveform of a whole decode, however latents come."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagemesh.models._tensors import to_buffer
from stagemesh.models.voice_chat import code2wav
from stagemesh.models.voice_chat.code2wav import Code2Wav
from stagemesh.models.voice_chat.net_code2wav import load_code2wav
from stagemesh.spec.payload import Payload
from stagemesh.spec.pipeline import NoOptions
from tests.models.voice_chat.driving import (
    code2wav_context,
    drain,
    joined,
    payloads_of,
    waveform,
)

pytestmark = pytest.mark.slow

FRAMES = 80


def piece(latent_cn: torch.Tensor, *, flush: bool = False) -> Payload:
    """A payload as the talker makes it."""
    return Payload(meta={"flush": flush}, buffers=(to_buffer("latent", latent_cn),))


def noise(frames: int, seed: int = 0) -> torch.Tensor:
    """Latents `[192, frames]` that no speech has, so that every frame matters."""
    return torch.randn(192, frames, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def whole_s(checkpoint: Path) -> torch.Tensor:
    """The whole decode of `noise(FRAMES)`, by the network alone."""
    net, _ = load_code2wav(checkpoint / "code2wav")
    audio_s: torch.Tensor = net(noise(FRAMES)[None])[0]
    return audio_s


@given(
    cuts=st.lists(st.integers(min_value=0, max_value=FRAMES), max_size=6),
    flushes=st.lists(st.booleans(), min_size=7, max_size=7),
)
@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_windows_equal_the_whole_decode(
    streaming_code2wav: Code2Wav, whole_s: torch.Tensor, cuts: list[int], flushes: list[bool]
) -> None:
    """Whatever pieces arrive and wherever speech pauses, the samples are those of one decode."""
    edges = [0, *sorted(cuts), FRAMES]
    latent_cn = noise(FRAMES)
    pieces = [
        piece(latent_cn[:, a:b], flush=flush)
        for a, b, flush in zip(edges, edges[1:], flushes, strict=False)
    ]
    outputs = waveform(streaming_code2wav, pieces)
    assert outputs[-1].done
    torch.testing.assert_close(joined(outputs, "audio"), whole_s, atol=1e-5, rtol=0)


def test_without_streaming_there_is_one_waveform(
    whole_code2wav: Code2Wav, whole_s: torch.Tensor
) -> None:
    """One payload with all samples; long inputs are decoded in windows all the same."""
    outputs = waveform(whole_code2wav, [piece(noise(FRAMES)[:, :60]), piece(noise(FRAMES)[:, 60:])])
    (payload,) = payloads_of(outputs)
    assert payload.meta["sampling_rate"] == 22_050
    torch.testing.assert_close(joined(outputs, "audio"), whole_s, atol=1e-5, rtol=0)
    assert sum(output.units["audio_s"] for output in outputs) == pytest.approx(
        FRAMES * 256 / 22_050
    )


def test_the_first_piece_is_heard_at_once(streaming_code2wav: Code2Wav) -> None:
    """Frames with context behind them are rendered as soon as the first piece is there."""
    session = streaming_code2wav.open("request", NoOptions())
    session.push(piece(noise(32)), last=False)
    (output,) = drain(streaming_code2wav, session)
    assert joined([output], "audio").shape == ((32 - 12) * 256,)


def test_batched_equals_single(streaming_code2wav: Code2Wav) -> None:
    """Sessions of one bucket share a batch and get what they get alone."""
    sessions = [streaming_code2wav.open("request", NoOptions()) for _ in range(3)]
    for seed, session in enumerate(sessions):
        session.push(piece(noise(40, seed)), last=True)
    assert len({session.bucket() for session in sessions}) == 1
    outputs = streaming_code2wav.run(sessions)
    for seed, output in enumerate(outputs):
        (alone, *_) = waveform(streaming_code2wav, [piece(noise(40, seed))])
        torch.testing.assert_close(
            joined([output], "audio"), joined([alone], "audio"), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("payload", [Payload(), Payload(buffers=(to_buffer("latent", noise(0)),))])
def test_no_latents_give_no_audio(
    streaming_code2wav: Code2Wav, whole_code2wav: Code2Wav, payload: Payload
) -> None:
    """The request ends without a payload."""
    for module in (streaming_code2wav, whole_code2wav):
        outputs = waveform(module, [payload])
        assert outputs[-1].done
        assert payloads_of(outputs) == []


def test_the_end_may_come_alone(streaming_code2wav: Code2Wav, whole_s: torch.Tensor) -> None:
    """A last payload without buffers releases what waited for more context."""
    outputs = waveform(streaming_code2wav, [piece(noise(FRAMES)), Payload()])
    assert outputs[-1].done
    torch.testing.assert_close(joined(outputs, "audio"), whole_s, atol=1e-5, rtol=0)


def test_borrowed_latents_are_copied(streaming_code2wav: Code2Wav, whole_s: torch.Tensor) -> None:
    """The producer may reuse its memory after the push."""
    lent_cn = noise(FRAMES)
    session = streaming_code2wav.open("request", NoOptions())
    session.push(piece(lent_cn), last=True)
    lent_cn.zero_()
    audio_s = joined(drain(streaming_code2wav, session), "audio")
    torch.testing.assert_close(audio_s, whole_s, atol=1e-5, rtol=0)


def test_latents_of_another_form_are_refused(streaming_code2wav: Code2Wav) -> None:
    """Dtype and channels are checked where they enter."""
    session = streaming_code2wav.open("request", NoOptions())
    for wrong in (torch.zeros(80, 4), torch.zeros(192, 4).double(), torch.zeros(192)):
        with pytest.raises(ValueError, match="latent"):
            session.push(piece(wrong), last=False)


def test_input_that_nobody_would_read_is_refused(streaming_code2wav: Code2Wav) -> None:
    """The sentence names it."""
    session = streaming_code2wav.open("request", NoOptions())
    with pytest.raises(ValueError, match="`buffers` holds `mel`, known here: `latent`"):
        session.push(Payload(buffers=(to_buffer("mel", noise(4)),)), last=True)


def test_windows_have_the_length_that_the_stage_is_given(checkpoint: Path) -> None:
    """`chunk_frames` is the most that one window renders."""
    short = code2wav.load(code2wav_context(checkpoint, async_chunk=True, chunk_frames=5))
    outputs = waveform(short, [piece(noise(12))])
    windows = [p.buffer("audio").shape[0] // 256 for p in payloads_of(outputs)]
    assert windows == [5, 5, 2]


def test_the_network_is_on_the_device_of_the_stage(checkpoint: Path) -> None:
    """Every weight is, and so are the latents that a session keeps."""
    moved = code2wav.load(code2wav_context(checkpoint, async_chunk=True, device="meta"))
    assert {weight.device.type for weight in moved._net.parameters()} == {"meta"}
    session = moved.open("request", NoOptions())
    session.push(piece(noise(40)), last=True)
    window = session.next_window()
    assert window is not None
    assert session.take(window).device.type == "meta"
