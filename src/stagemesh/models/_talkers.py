"""What talkers and their codecs have in common: sizes of chunks, and the way of the first frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeAlias, cast

from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen
from stagemesh.spec.model import ModelFinding, ModelStage, ModelView

Count: TypeAlias = Annotated[int, Range(minimum=1)]
"""A number of things that must exist."""

Amount: TypeAlias = Annotated[int, Range(minimum=0)]
"""A number of things that may be absent."""


@frozen
class CodecChunks:
    """Options of an edge that carries frames of codec tokens."""

    codec_chunk_frames: Count = 25
    """Frames that are handed over together."""
    codec_left_context_frames: Amount = 25
    """Frames before a chunk that are decoded with it again, so that chunks join."""
    initial_codec_chunk_frames: Amount = 0
    """Frames of the first chunk, for an earlier first sound; `0` makes it like the others."""
    codec_chunk_ramp: tuple[Count, ...] = ()
    """Frames of the first chunks, one after the other, instead of the first one's alone."""


@frozen
class FirstAudioChunks(CodecChunks):
    """The same where the talker can decode the first frame itself."""

    talker_first_audio: bool = False
    """Whether it does, with model runner `v2` on CUDA; elsewhere the codec decodes all frames."""


def first_audio_findings(
    view: ModelView, talker: str, codec: str, *, with_prefix_cache: bool = False
) -> Iterator[ModelFinding]:
    """Say what a talker that is to decode the first frame lacks.

    `with_prefix_cache` says that the model's way of doing it bears a prefix cache.
    """
    stage = view.stages[talker]
    options = cast("FirstAudioChunks", stage.edge_options[codec])
    acts = view.platform == "cuda" and stage.fields["model_runner"] == "v2"
    if not options.talker_first_audio or not acts:
        return
    for field, need in lacking(view, stage):
        if field != "enable_prefix_caching" or not with_prefix_cache:
            yield ModelFinding(
                code="MD029",
                message=f"`talker_first_audio` needs {need} for `{talker}`",
                stage=talker,
                field=field,
                help="or set `talker_first_audio: false` in `extra` of the connector",
                asked_by="talker_first_audio",
            )


def lacking(view: ModelView, stage: ModelStage) -> Iterator[tuple[str, str]]:
    """Say what a talker that decodes frames itself lacks: the field at fault, and what it needs.

    It hands sound out from inside the process of its one rank, while the prompt is new.
    """
    if not view.async_chunk:
        yield "async_chunk", "`async_chunk: true`"
    for axis, size in stage.ranks.items():
        yield axis, f"one rank instead of `{axis}` = `{size}`"
    if not stage.ranks and stage.fields["distributed_executor_backend"] != "uni":
        yield "distributed_executor_backend", "`distributed_executor_backend: uni`"
    if stage.fields.get("enable_prefix_caching") is not False:
        yield "enable_prefix_caching", "`enable_prefix_caching: false`"
