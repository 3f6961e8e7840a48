"""What a checkpoint says about the network of one stage, to check layouts before loading."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """Facts about one stage's network. `None` means that the checkpoint does not say.

    A check that needs a missing fact is skipped, and the plan lists it as skipped.
    """

    num_attention_heads: int | None = None
    """Query heads of one attention layer."""
    num_kv_heads: int | None = None
    """Key and value heads of one attention layer."""
    num_layers: int | None = None
    """Repeated blocks."""
    num_experts: int | None = None
    """Routed experts of one MoE layer; `0` says that there are none."""
    hidden_size: int | None = None
    """Width of the residual stream."""
    intermediate_size: int | None = None
    """Inner width of the feed-forward block."""
    head_dim: int | None = None
    """Width of one attention head."""
    vocab_size: int | None = None
    """Rows of the embedding table."""
    max_model_len: int | None = None
    """Longest sequence in tokens."""
    guidance: bool | None = None
    """Whether the model takes classifier-free guidance."""
    weight_bytes: int | None = None
    """Bytes of the stage's weight files."""
    weight_dtype: str | None = None
    """Type of the weights, a key of `payload.DTYPE_BYTES`."""
