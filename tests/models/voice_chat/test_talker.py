"""The talker: latents depend on text, seed and place only, however they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stagemesh.models._tensors import from_buffer
from stagemesh.models.voice_chat import talker
from stagemesh.models.voice_chat.options import TalkerParams
from stagemesh.models.voice_chat.talker import Talker
from stagemesh.spec.payload import Payload
from tests.models.voice_chat.driving import (
    drain,
    joined,
    latents,
    payloads_of,
    talker_context,
)
from tests.models.voice_chat.splitting import split_clauses

pytestmark = pytest.mark.slow

TEXT = "Good morning, my friend. It is ten o'clock; the sun shines! Shall we go?"


def test_streaming_equals_whole(streaming_talker: Talker, whole_talker: Talker) -> None:
    """Clause by clause in chunks, or everything in one payload: the same latents."""
    clauses = split_clauses(TEXT)
    assert len(clauses) > 3
    streamed = latents(streaming_talker, clauses)
    whole = latents(whole_talker, [TEXT])
    torch.testing.assert_close(joined(streamed, "latent"), joined(whole, "latent"), atol=0, rtol=0)
    assert len(payloads_of(whole)) == 1
    assert all(p.buffer("latent").shape[1] <= 32 for p in payloads_of(streamed))
    assert sum(p.meta.get("flush") is True for p in payloads_of(streamed)) == len(clauses)


def test_the_first_clause_is_spoken_before_the_text_ends(streaming_talker: Talker) -> None:
    """A session that may get more text gives the latents of what it has."""
    session = streaming_talker.open("request", TalkerParams())
    session.push(Payload(meta={"text": "Good morning."}), last=False)
    (output,) = drain(streaming_talker, session)
    assert output.payloads
    assert not output.done
    assert output.units["frames"] == joined([output], "latent").shape[1]
    session.push(Payload(), last=True)
    (end,) = drain(streaming_talker, session)
    assert end.done
    assert end.payloads == ()


def test_batched_equals_single(whole_talker: Talker) -> None:
    """Requests that run together get, bit by bit, what they get alone, whatever their lengths."""
    texts = ["Yes.", "The sun rises in the east.", "A short one this is.", "Hello there friend."]
    sessions = [whole_talker.open("request", TalkerParams(seed=seed)) for seed in range(len(texts))]
    for session, text in zip(sessions, texts, strict=True):
        session.push(Payload(meta={"text": text}), last=True)
    outputs = whole_talker.run(sessions)
    for seed, (text, output) in enumerate(zip(texts, outputs, strict=True)):
        alone = joined(latents(whole_talker, [text], seed), "latent")
        assert torch.equal(joined([output], "latent"), alone)


def test_the_seed_decides(whole_talker: Talker) -> None:
    """The same seed gives the same latents, another others; equal clauses differ by place."""
    first, again, other = (
        joined(latents(whole_talker, ["Hello there."], seed), "latent") for seed in (1, 1, 2)
    )
    torch.testing.assert_close(first, again, atol=0, rtol=0)
    assert first.shape != other.shape or not torch.allclose(first, other)
    twice = latents(whole_talker, ["Hello there. Hello there."], 1)
    assert joined(twice, "latent").shape[1] > first.shape[1]
    assert not torch.equal(joined(twice, "latent")[:, -20:], first[:, -20:])


@pytest.mark.parametrize("text", ["", "...", "🙂 !?", "—\n\n*"])
def test_nothing_to_say_gives_nothing(
    streaming_talker: Talker, whole_talker: Talker, text: str
) -> None:
    """Text without sounds ends the request without a payload."""
    for module in (streaming_talker, whole_talker):
        outputs = latents(module, [text])
        assert outputs[-1].done
        assert payloads_of(outputs) == []


def test_unspoken_clauses_do_not_shift_the_noise(whole_talker: Talker) -> None:
    """A clause keeps the noise of its place, so streaming and whole agree around silent clauses."""
    text = "日本語です! Hello there."
    assert torch.equal(
        joined(latents(whole_talker, [text]), "latent"),
        joined(latents(whole_talker, split_clauses(text)), "latent"),
    )


def test_length_scale_slows_down(whole_talker: Talker) -> None:
    """Twice the scale is about twice the frames; `None` is the voice's own value."""
    frames: list[int] = []
    for scale in (None, 1.0, 2.0):
        params = TalkerParams(length_scale=scale, noise_scale_duration=0.0)
        session = whole_talker.open("request", params)
        session.push(Payload(meta={"text": "Hello there."}), last=True)
        frames.append(joined(drain(whole_talker, session), "latent").shape[1])
    assert frames[0] == frames[1]
    assert 1.7 < frames[2] / frames[1] < 2.1


def test_chunks_have_the_length_that_the_stage_is_given(checkpoint: Path) -> None:
    """`chunk_frames` cuts the latents."""
    short = talker.load(talker_context(checkpoint, async_chunk=True, chunk_frames=5))
    frames = [p.buffer("latent").shape[1] for p in payloads_of(latents(short, ["Hello."]))]
    assert len(frames) > 2
    assert set(frames[:-1]) == {5}


def test_the_network_is_on_the_device_of_the_stage(checkpoint: Path) -> None:
    """Every weight is, so that a stage on another device computes there."""
    moved = talker.load(talker_context(checkpoint, async_chunk=True, device="meta"))
    assert {weight.device.type for weight in moved._net.parameters()} == {"meta"}


def test_input_that_nobody_would_read_is_refused(whole_talker: Talker) -> None:
    """The sentence names it."""
    session = whole_talker.open("request", TalkerParams())
    with pytest.raises(ValueError, match="`meta` holds `txet`, known here: `text`"):
        session.push(Payload(meta={"txet": "Hello."}), last=True)


def test_latents_have_the_promised_form(whole_talker: Talker) -> None:
    """Float32, 192 channels, finite."""
    (payload,) = payloads_of(latents(whole_talker, ["Hello."]))
    latent_cn = from_buffer(payload.buffer("latent"))
    assert latent_cn.dtype == torch.float32
    assert latent_cn.shape[0] == 192
    assert torch.isfinite(latent_cn).all()
