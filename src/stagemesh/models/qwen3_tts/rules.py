"""What excludes what in Qwen3-TTS, and what its one-stage form needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from stagemesh.models._talkers import first_audio_findings, lacking
from stagemesh.models.qwen3_tts.options import CodecEdge, FusedOptions, TalkerOptions
from stagemesh.spec.model import ModelFinding, ModelView

TALKER: Final = "talker"
CODE2WAV: Final = "code2wav"

_DECODE: Final = "talker_stream_decode"
_FIRST: Final = "talker_stream_first_audio"


def check_two_stages(view: ModelView) -> Iterator[ModelFinding]:
    """Refuse what belongs to the one-stage form, and options of the edge that contradict."""
    talker = view.stages[TALKER]
    own = cast("TalkerOptions", talker.options)
    edge = cast("CodecEdge", talker.edge_options[CODE2WAV])
    if own.talker_stream_decode:
        yield _refused(
            _DECODE,
            f"`{_DECODE}` is for one stage: `{CODE2WAV}` takes codec frames, and no sound",
            "write `pipeline: qwen3_tts_fused`, as the file `qwen3_tts_fused_single_gpu` does",
        )
    if own.talker_stream_first_audio and edge.talker_first_audio:
        yield _refused(
            _FIRST,
            f"`{_FIRST}` and `talker_first_audio` exclude each other",
            "keep `talker_first_audio`, which is the way of two stages",
        )
    elif own.talker_stream_first_audio and not own.talker_stream_decode:
        yield _refused(
            _FIRST,
            f"`{_FIRST}` is for one stage, whose talker decodes frames itself",
            "set `talker_first_audio: true` in `extra` of the connector instead",
        )
    yield from first_audio_findings(view, TALKER, CODE2WAV)
    yield from _contradictions(edge)


def _contradictions(edge: CodecEdge) -> Iterator[ModelFinding]:
    if edge.code_predictor_kv_cache and edge.code_predictor_prefix_graphs:
        yield _refused(
            "code_predictor_prefix_graphs",
            "`code_predictor_prefix_graphs` and `code_predictor_kv_cache` exclude each other",
            "set one of them to `false`",
        )
    most, captured = edge.decode_batch_max_size, max(edge.decode_cudagraph_batch_sizes, default=1)
    if captured > most:
        yield _refused(
            "decode_cudagraph_batch_sizes",
            f"a graph for `{captured}` requests is never used: `decode_batch_max_size` is `{most}`",
            f"set `decode_batch_max_size: {captured}`, or leave the size out",
        )


def check_fused(view: ModelView) -> Iterator[ModelFinding]:
    """Say what the one-stage form lacks."""
    talker = view.stages[TALKER]
    options = cast("FusedOptions", talker.options)
    if not options.talker_stream_decode:
        yield _refused(
            _DECODE,
            f"`{_DECODE}` cannot be `false`: no other stage decodes",
            "leave it out, or take the two stages of `qwen3_tts`",
        )
    if view.platform != "cuda":
        yield _needs("devices", f"CUDA devices, and these are of `{view.platform}`")
    if talker.fields["model_runner"] != "v2":
        yield _needs("model_runner", "`model_runner: v2`")
    for field, need in lacking(view, talker):
        yield _needs(field, need)


def _refused(field: str, message: str, help_text: str) -> ModelFinding:
    return ModelFinding(code="MD028", message=message, stage=TALKER, field=field, help=help_text)


def _needs(field: str, need: str) -> ModelFinding:
    return ModelFinding(
        code="MD029",
        message=f"a talker that decodes frames itself needs {need}",
        stage=TALKER,
        field=field,
        help="lay your file on `qwen3_tts_fused_single_gpu`, or take the two stages of `qwen3_tts`",
    )
