"""What the `ar` engine may be told: by the stage (`ArOptions`) and by a request (`ArParams`)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen

MIN_TEMPERATURE: Final = 1e-3
"""The least above 0: smaller ones are the likeliest token too, but scores overflow on the way."""
MAX_TEMPERATURE: Final = 100.0
"""The greatest: all tokens are almost equally likely then."""

ALL_THAT_FITS: Final = -1
"""A `max_model_len` that says: as many tokens as the cache holds."""
_MIN_LENGTH: Final = 2
"""A token of the prompt and one of the answer."""


@frozen
class ArOptions:
    """Arguments of the `ar` engine."""

    max_num_seqs: Annotated[int, Range(minimum=1)] = 64
    """Most requests that one step computes together."""
    max_num_batched_tokens: Annotated[int, Range(minimum=1)] = 2048
    """Most tokens that one step computes; longer prompts are computed in chunks of this size."""
    max_model_len: Annotated[int, Range(minimum=1, also=ALL_THAT_FITS)] | None = None
    """Longest sequence, prompt and answer together; `None` takes the checkpoint's, `-1` as much of
    it as the cache holds."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Type of weights and cache; `auto` takes the checkpoint's, but float32 on a CPU that has no
    instructions for the checkpoint's (several times as fast there, and exact)."""
    block_size: Annotated[int, Range(minimum=1)] = 32
    """Tokens that one block of the key-value cache holds."""
    kv_cache_memory_bytes: Annotated[int, Range(minimum=1)] | None = None
    """Bytes of the key-value cache; `None` takes 1 GiB, or what the lengths need if it differs."""
    num_threads: Annotated[int, Range(minimum=1)] = 1
    """Threads of torch on a CPU device."""

    def __post_init__(self) -> None:
        """Refuse lengths that hold no prompt with an answer."""
        length = self.max_model_len
        if length not in (None, ALL_THAT_FITS) and length < _MIN_LENGTH:
            raise ValueError(f"`max_model_len` is `{length}`, the least is `{_MIN_LENGTH}`")


@frozen
class ArParams:
    """Parameters of one request."""

    max_tokens: Annotated[int, Range(minimum=1)] = 256
    """Most tokens of the answer; cut to what the context leaves."""
    min_tokens: Annotated[int, Range(minimum=0)] = 0
    """Tokens before which neither a stop string nor an end token ends it; at most `max_tokens`."""
    temperature: Annotated[float, Range(minimum=0.0, maximum=MAX_TEMPERATURE)] = 0.0
    """Randomness; 0 always takes the likeliest token, and otherwise 0.001 is the least."""
    top_k: Annotated[int, Range(minimum=0)] = 0
    """Draw among this many likeliest tokens; 0 for all."""
    top_p: Annotated[float, Range(minimum=0.0, maximum=1.0)] = 1.0
    """Draw among the likeliest tokens that together have this probability."""
    repetition_penalty: Annotated[float, Range(minimum=0.01)] = 1.0
    """Divides the score of tokens seen in prompt or answer; 1 for none."""
    seed: Annotated[int, Range(minimum=0, maximum=2**63 - 1)] | None = None
    """Seed of the draws, which then depend on nothing else; `None` draws a seed."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer; they are not part of it."""
    stop_token_ids: tuple[Annotated[int, Range(minimum=0)], ...] = ()
    """Tokens of the vocabulary that end the answer, beside the checkpoint's own."""
    ignore_eos: bool = False
    """Whether the checkpoint's own end tokens do not end the answer."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing, alone or together."""
        if "" in self.stop:
            raise ValueError("`stop` holds an empty string")
        if 0 < self.temperature < MIN_TEMPERATURE:
            allowed = f"`0` or at least `{MIN_TEMPERATURE}`"
            raise ValueError(f"`temperature` must be {allowed}, got `{self.temperature}`")
        if self.min_tokens > self.max_tokens:
            least, most = self.min_tokens, self.max_tokens
            raise ValueError(f"`min_tokens` is `{least}`, which is above `max_tokens` `{most}`")
