"""The stage `code2wav`: acoustic latents in, waveform out, in windows.

Input payloads carry the buffer `latent`, float32 `[192, n]`, any n; `meta["flush"]` says that
speech pauses here, so that what can be decoded should be. Output payloads carry the buffer `audio`,
float32 `[samples]` in [-1, 1], and `meta["sampling_rate"]`; with `async_chunk` one per window,
otherwise one for the whole request. A request without latents gives no payload.

One unit of work is one window: up to `chunk_frames` new frames with `context_frames` on both sides,
which are decoded and cut off. With the default of 12 the result equals a decode of the whole within
1e-5. The first window needs only `context_frames` beyond its frames, so it starts with the first
input.

Shape suffixes: b batch, c latent channels (192), n latent frames, s samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, cast

import torch

from stagemesh.models._tensors import from_buffer, to_buffer
from stagemesh.models.voice_chat.net_code2wav import Code2WavNet, load_code2wav
from stagemesh.models.voice_chat.options import Code2WavOptions
from stagemesh.spec.frozen import frozen
from stagemesh.spec.generation import GenerationSession, ModuleContext, ModuleOutput
from stagemesh.spec.payload import Payload

_WHOLE_CHUNK_FRAMES: Final = 256
"""New frames of a window when nothing is streamed: less context is decoded twice."""
_FINISH: Final = "finish"
"""Bucket of a session that only has to say that it is done."""


@frozen
class Sizes:
    """How latents are cut into windows, in frames."""

    chunk: int
    """Most new frames of a window."""
    context: int
    """Frames decoded on each side and cut off."""


@frozen
class Window:
    """Frames of one unit of work, counted from the start of the request."""

    start: int
    """First frame that is decoded."""
    emit: int
    """First frame whose audio is new."""
    emit_end: int
    """One past the last frame whose audio is new."""
    end: int
    """One past the last frame that is decoded."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames of left context, new frames, frames of right context."""
        return self.emit - self.start, self.emit_end - self.emit, self.end - self.emit_end


class Code2WavSession:
    """The state of one request: latents still needed, and how far audio was made."""

    def __init__(self, latent_size: int, sizes: Sizes, device: str) -> None:
        """Start with no latents; they are kept on `device`."""
        self.kept: list[torch.Tensor] = []
        """Audio held back for the one payload of a request that is not streamed."""
        self._sizes = sizes
        self._latent_cn = torch.empty(latent_size, 0, device=device)
        self._offset = 0  # number of the first frame that is still in `_latent_cn`
        self._emitted = 0  # frames whose audio was made
        self._flushed = 0  # frames up to which audio should not wait for a full window
        self._last = False

    def push(self, payload: Payload, *, last: bool) -> None:
        """Take latents; a payload without buffers brings none.

        Raises `ValueError` when `latent` has another dtype or shape, and for anything beside
        `latent` and `flush`.
        """
        payload.only(meta=("flush",), buffers=("latent",))
        if payload.buffers:
            latent_cn = from_buffer(payload.buffer("latent"))
            width = self._latent_cn.shape[0]
            if latent_cn.dtype != torch.float32 or latent_cn.shape[:-1] != (width,):
                shape = tuple(latent_cn.shape)
                raise ValueError(f"`latent` is `{latent_cn.dtype}` `{shape}`, not `[{width}, n]`")
            arrived_cn = latent_cn.to(self._latent_cn.device)
            self._latent_cn = torch.cat([self._latent_cn, arrived_cn], dim=1)  # copies
        self._last = self._last or last
        if self._last or payload.meta.get("flush") is True:
            self._flushed = self._num_frames

    @property
    def _num_frames(self) -> int:
        return self._offset + self._latent_cn.shape[1]

    @property
    def done(self) -> bool:
        """Whether all audio of a complete input was made."""
        return self._last and self._emitted == self._num_frames

    def next_window(self) -> Window | None:
        """Return the next unit of work, `None` while there is none."""
        context = self._sizes.context
        ready = self._num_frames if self._last else self._num_frames - context
        new = min(ready - self._emitted, self._sizes.chunk)
        flushing = self._emitted < self._flushed
        # the first window is what the first input allows: hearing it early is worth the overhead
        enough = 1 if flushing or self._emitted == 0 else self._sizes.chunk
        if new < enough:
            return None
        emit_end = self._emitted + new
        return Window(
            start=max(self._emitted - context, 0),
            emit=self._emitted,
            emit_end=emit_end,
            end=min(emit_end + context, self._num_frames),
        )

    def bucket(self) -> Hashable | None:
        """Return the shape of the next window, or `"finish"` when only the end is to be said."""
        window = self.next_window()
        if window is not None:
            return window.shape
        return _FINISH if self.done else None

    def take(self, window: Window) -> torch.Tensor:
        """Return the frames `[c, n]` of `window`; count them, and drop what none needs again."""
        frames_cn = self._latent_cn[:, window.start - self._offset : window.end - self._offset]
        self._emitted = window.emit_end
        keep = max(self._emitted - self._sizes.context, 0)
        self._latent_cn = self._latent_cn[:, keep - self._offset :]
        self._offset = keep
        return frames_cn


class Code2Wav:
    """The module behind the engine; see the module docstring for its payloads."""

    def __init__(
        self, net: Code2WavNet, facts: Mapping[str, Any], context: ModuleContext, sizes: Sizes
    ) -> None:
        """Serve `net`, whose `config.json` is `facts`."""
        self._net = net
        self._latent_size: int = facts["latent_size"]
        self._rate: int = facts["sampling_rate"]
        self._device = context.device
        self._async_chunk = context.async_chunk
        self._sizes = sizes

    def open(self, request_id: str, params: object) -> Code2WavSession:
        """Start a session; there are no parameters."""
        del request_id, params
        return Code2WavSession(self._latent_size, self._sizes, self._device)

    def run(self, sessions: Sequence[GenerationSession]) -> list[ModuleOutput]:
        """Decode the next window of every session as one batch of equal shapes."""
        own = [cast("Code2WavSession", session) for session in sessions]
        work = [(s, w) for s in own if (w := s.next_window()) is not None]
        audio: dict[int, torch.Tensor] = {}
        if work:
            left, _, right = work[0][1].shape
            latent_bcn = torch.stack([session.take(window) for session, window in work])
            audio_bs = self._net(latent_bcn, left, right)
            audio = {
                id(session): audio_s for (session, _), audio_s in zip(work, audio_bs, strict=True)
            }
        return [self._output(session, audio.get(id(session))) for session in own]

    def _output(self, session: Code2WavSession, audio_s: torch.Tensor | None) -> ModuleOutput:
        seconds = 0.0 if audio_s is None else audio_s.shape[0] / self._rate
        if audio_s is not None:
            session.kept.append(audio_s)
        payloads: tuple[Payload, ...] = ()
        if session.kept and (self._async_chunk or session.done):
            buffer = to_buffer("audio", torch.cat(session.kept))
            payloads = (Payload(meta={"sampling_rate": self._rate}, buffers=(buffer,)),)
            session.kept.clear()
        return ModuleOutput(payloads=payloads, done=session.done, units={"audio_s": seconds})


def load(context: ModuleContext) -> Code2Wav:
    """Load code2wav; a `GenerationLoader` with `Code2WavOptions`."""
    options = context.args
    assert isinstance(options, Code2WavOptions)
    sizes = Sizes(
        chunk=options.chunk_frames if context.async_chunk else _WHOLE_CHUNK_FRAMES,
        context=options.context_frames,
    )
    net, facts = load_code2wav(context.folder, context.device)
    return Code2Wav(net, facts, context, sizes)
