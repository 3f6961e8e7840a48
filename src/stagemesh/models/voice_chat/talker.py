"""The stage `talker`: text in, acoustic latents out, clause by clause.

Input payloads carry `meta["text"]`: whole clauses, one or many, or the whole text. Output payloads
carry the buffer `latent`, float32 `[192, n]` at 86.13 frames/s. With `async_chunk` they are pieces
of `chunk_frames`, sent as soon as a clause is done, and the last piece of a clause has
`meta["flush"]` set to true; otherwise there is one payload for the whole request. Text without
anything to say gives no payload.

One unit of work is one clause. A clause's latents depend on its symbols, the request's parameters
and its place in the text only: not on how the text was cut, nor on what else runs.

Shape suffixes: t symbols, n latent frames, c latent channels (192), 2 the two channels of the
duration flow.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, cast

import torch

from stagemesh.models._tensors import to_buffer
from stagemesh.models.voice_chat.clauses import ClauseSplitter
from stagemesh.models.voice_chat.net_talker import TalkerNet, load_talker
from stagemesh.models.voice_chat.options import TalkerOptions, TalkerParams
from stagemesh.models.voice_chat.phonemes import encode, phonemize, warm_up
from stagemesh.spec.frozen import frozen
from stagemesh.spec.generation import GenerationSession, ModuleContext, ModuleOutput
from stagemesh.spec.payload import MetaValue, Payload

_BUCKET_SYMBOLS: Final = 64
"""Clauses whose numbers of symbols fall into one step of this width share a bucket."""
_FINISH: Final = "finish"
"""Bucket of a session that only has to say that it is done."""


@frozen
class Speech:
    """How a request is spoken: its parameters, and the voice's own where it gives none."""

    seed: int
    """Start of the noise; the same seed and text give the same speech."""
    length_scale: float
    """Factor on every duration; 2.0 speaks at half the speed."""
    noise_scale: float
    """Spread of the latents around their means; 0.0 is monotonous."""
    noise_scale_duration: float
    """Spread of the durations; 0.0 is mechanical."""


@frozen
class Clause:
    """One unit of work."""

    index: int
    """Place of the clause in the request's text, counting clauses without sound too."""
    ids: tuple[int, ...]
    """Input of the text encoder."""


class TalkerSession:
    """The state of one request: text not yet cut, clauses not yet spoken, latents not yet sent."""

    def __init__(self, speech: Speech, phoneme_ids: Mapping[str, int]) -> None:
        """Start with no text."""
        self.speech = speech
        self.clauses: deque[Clause] = deque()
        self.kept: list[torch.Tensor] = []
        """Latents held back for the one payload of a request that is not streamed."""
        self.last = False
        """No more text follows."""
        self._phoneme_ids = phoneme_ids
        self._splitter = ClauseSplitter()
        self._num_clauses = 0

    def push(self, payload: Payload, *, last: bool) -> None:
        """Take whole clauses, which are cut further if needed; no `text` brings none.

        Raises `TypeError` when `text` is no string, `ValueError` for anything beside it.
        """
        payload.only(meta=("text",))
        text = payload.meta.get("text", "")
        if not isinstance(text, str):
            raise TypeError(f"payload has `text` of type `{type(text).__name__}`, not `str`")
        self.last = self.last or last
        for clause in self._splitter.feed(text) + self._splitter.close():
            ids = tuple(encode(phonemize(clause), self._phoneme_ids))
            if ids:
                self.clauses.append(Clause(index=self._num_clauses, ids=ids))
            self._num_clauses += 1

    def bucket(self) -> Hashable | None:
        """Return the size class of the next clause, or `"finish"` when only the end is left."""
        if self.clauses:
            return math.ceil(len(self.clauses[0].ids) / _BUCKET_SYMBOLS)
        return _FINISH if self.last else None


class Talker:
    """The module behind the engine; see the module docstring for its payloads."""

    def __init__(
        self, net: TalkerNet, facts: Mapping[str, Any], context: ModuleContext, chunk_frames: int
    ) -> None:
        """Serve `net`, whose `config.json` is `facts`."""
        self._net = net
        self._facts = facts
        self._device = context.device
        self._async_chunk = context.async_chunk
        self._chunk_frames = chunk_frames

    def open(self, request_id: str, params: object) -> TalkerSession:
        """Start a session; `params` are `TalkerParams`."""
        del request_id
        assert isinstance(params, TalkerParams)
        speech = Speech(
            seed=params.seed,
            length_scale=self._own(params.length_scale, "length_scale"),
            noise_scale=self._own(params.noise_scale, "noise_scale"),
            noise_scale_duration=self._own(params.noise_scale_duration, "noise_scale_duration"),
        )
        return TalkerSession(speech, self._facts["phoneme_ids"])

    def _own(self, given: float | None, name: str) -> float:
        """Return what is given, or else the voice's own value."""
        return float(self._facts[name] if given is None else given)

    def run(self, sessions: Sequence[GenerationSession]) -> list[ModuleOutput]:
        """Speak the next clause of every session; a session at its end is only told to be done."""
        own = [cast("TalkerSession", session) for session in sessions]
        return [self._output(s, self._speak(s) if s.clauses else None) for s in own]

    def _speak(self, session: TalkerSession) -> torch.Tensor:
        """Take the next clause of `session`; return its latents `[c, n]`."""
        clause, speech = session.clauses.popleft(), session.speech
        # drawn on the CPU, so that a seed gives the same noise on every device
        generator = torch.Generator().manual_seed(_clause_seed(speech.seed, clause.index))
        noise_2t = torch.randn(2, len(clause.ids), generator=generator)
        noise_2t = (noise_2t * speech.noise_scale_duration).to(self._device)
        ids_t = torch.tensor(clause.ids, device=self._device)
        prior = self._net.prior(ids_t, noise_2t, speech.length_scale)
        noise_cn = torch.randn(prior.mean_cn.shape, generator=generator).to(self._device)
        spread_cn = torch.exp(prior.log_scale_cn) * speech.noise_scale
        return self._net.decode(prior.mean_cn + noise_cn * spread_cn)

    def _output(self, session: TalkerSession, latent_cn: torch.Tensor | None) -> ModuleOutput:
        done = session.last and not session.clauses
        num_frames = 0 if latent_cn is None else latent_cn.shape[1]
        payloads: tuple[Payload, ...] = ()
        if latent_cn is not None and self._async_chunk:
            pieces = torch.split(latent_cn, self._chunk_frames, dim=1)
            flags = [False] * (len(pieces) - 1) + [True]
            payloads = tuple(
                _payload(piece_cn, flush=flag) for piece_cn, flag in zip(pieces, flags, strict=True)
            )
        elif latent_cn is not None:
            session.kept.append(latent_cn)
        if done and session.kept:
            payloads = (_payload(torch.cat(session.kept, dim=1), flush=True),)
            session.kept.clear()
        return ModuleOutput(payloads=payloads, done=done, units={"frames": float(num_frames)})


def load(context: ModuleContext) -> Talker:
    """Load the talker; a `GenerationLoader` with `TalkerOptions`.

    Raises `ModuleNotFoundError` when gruut is not installed.
    """
    assert isinstance(context.args, TalkerOptions)
    warm_up()
    net, facts = load_talker(context.folder, context.device)
    return Talker(net, facts, context, context.args.chunk_frames)


def _payload(latent_cn: torch.Tensor, *, flush: bool) -> Payload:
    meta: dict[str, MetaValue] = {"flush": True} if flush else {}
    return Payload(meta=meta, buffers=(to_buffer("latent", latent_cn),))


def _clause_seed(seed: int, index: int) -> int:
    """Return 63 bits that differ for every pair of request seed and clause."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
