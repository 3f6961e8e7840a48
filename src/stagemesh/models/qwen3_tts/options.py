"""What deploy files may set for the stages of Qwen3-TTS and for the edge between them."""

from __future__ import annotations

from stagemesh.models._talkers import Amount, Count, FirstAudioChunks
from stagemesh.spec.frozen import frozen


@frozen
class CodecEdge(FirstAudioChunks):
    """`extra` of the connector between talker and code2wav."""

    codec_left_context_frames: Amount = 72
    """Frames before a chunk that are decoded with it again; the window of the decoder."""
    ref_code_context_frames: Count | None = None
    """Frames of a reference voice that the decoder hears first; `null` takes the left context."""
    ref_audio_artifact_cache_max_entries: Amount = 1024
    """Reference voices whose codes are kept."""
    code_predictor_kv_cache: bool = False
    """Whether the further codes of a frame are predicted with cached keys and values."""
    code_predictor_prefix_graphs: bool = False
    """Whether they are predicted by captured graphs of every prefix, without a cache."""
    code_predictor_fused_sampling: bool = False
    """Whether they are drawn inside the captured graph."""
    decode_cudagraph_batch_sizes: tuple[Count, ...] = (1,)
    """Requests of one decoding step for which graphs are captured."""
    decode_batch_max_size: Count = 1
    """Most requests of one decoding step."""
    decode_time_major_conv: bool = False
    """Whether the convolutions of the decoder run with time as the inner dimension."""


@frozen
class TalkerOptions:
    """`additional_config` of the talker of two stages, which cannot decode frames itself."""

    talker_stream_decode: bool = False
    """Whether it decodes frames itself: only the talker of one stage does."""
    talker_stream_first_audio: bool = False
    """Whether the first frame has a queue of its own: only where it decodes frames itself."""


@frozen
class FusedOptions:
    """`additional_config` of the talker of one stage, which puts out sound."""

    talker_stream_decode: bool = True
    """Whether it decodes frames itself: without that nobody does."""
    talker_stream_first_audio: bool = False
    """Whether the first frame has a queue of its own: an earlier first sound, less throughput."""
    ref_code_context_frames: Count = 72
    """Frames of a reference voice that the decoder hears first; fewer can change the timbre."""
    code_predictor_kv_cache: bool = False
    """Whether the further codes of a frame are predicted with cached keys and values."""
    code_predictor_fused_sampling: bool = False
    """Whether they are drawn inside the captured graph."""
    code_predictor_fused: bool = False
    """Whether the layers of that predictor run as fused kernels."""
