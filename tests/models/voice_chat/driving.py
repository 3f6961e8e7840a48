"""How the tests of `voice_chat` run a module without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from stagemesh.models._tensors import from_buffer
from stagemesh.models.voice_chat.code2wav import Code2Wav
from stagemesh.models.voice_chat.options import Code2WavOptions, TalkerOptions, TalkerParams
from stagemesh.models.voice_chat.talker import Talker
from stagemesh.spec.generation import (
    GenerationModule,
    GenerationSession,
    ModuleContext,
    ModuleOutput,
)
from stagemesh.spec.payload import Payload
from stagemesh.spec.pipeline import NoOptions


def talker_context(
    checkpoint: Path, *, async_chunk: bool, device: str = "cpu", chunk_frames: int = 32
) -> ModuleContext:
    """Return what the talker is given to load."""
    options = TalkerOptions(chunk_frames=chunk_frames)
    return ModuleContext(
        folder=checkpoint / "talker", device=device, args=options, async_chunk=async_chunk
    )


def code2wav_context(
    checkpoint: Path, *, async_chunk: bool, device: str = "cpu", chunk_frames: int = 32
) -> ModuleContext:
    """Return what code2wav is given to load."""
    options = Code2WavOptions(chunk_frames=chunk_frames)
    return ModuleContext(
        folder=checkpoint / "code2wav", device=device, args=options, async_chunk=async_chunk
    )


def drain(module: GenerationModule, session: GenerationSession) -> list[ModuleOutput]:
    """Run units until the session is done or waits for input."""
    outputs: list[ModuleOutput] = []
    while not (outputs and outputs[-1].done) and session.bucket() is not None:
        outputs += module.run([session])
    return outputs


def joined(outputs: Sequence[ModuleOutput], name: str) -> torch.Tensor:
    """Return the buffers `name` of all payloads, one after the other."""
    parts = [from_buffer(p.buffer(name)) for output in outputs for p in output.payloads]
    return torch.cat(parts, dim=-1) if parts else torch.empty(0)


def latents(module: Talker, texts: Sequence[str], seed: int = 0) -> list[ModuleOutput]:
    """Speak the texts, one payload each, running whatever is ready after each."""
    session = module.open("request", TalkerParams(seed=seed))
    outputs: list[ModuleOutput] = []
    for index, text in enumerate(texts):
        session.push(Payload(meta={"text": text}), last=index == len(texts) - 1)
        outputs += drain(module, session)
    return outputs


def waveform(module: Code2Wav, payloads: Sequence[Payload]) -> list[ModuleOutput]:
    """Render the latents, running whatever is ready after each payload."""
    session = module.open("request", NoOptions())
    outputs: list[ModuleOutput] = []
    for index, payload in enumerate(payloads):
        session.push(payload, last=index == len(payloads) - 1)
        outputs += drain(module, session)
    return outputs


def payloads_of(outputs: Sequence[ModuleOutput]) -> list[Payload]:
    """Return all payloads in order."""
    return [payload for output in outputs for payload in output.payloads]
