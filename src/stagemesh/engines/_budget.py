"""What the memory models of several engines count alike: weights, the share of a device, layers."""

from __future__ import annotations

from typing import Final

from stagemesh.spec.cost import Part
from stagemesh.spec.engine import MemoryInput
from stagemesh.spec.payload import DTYPE_BYTES

WORKSPACE_BYTES: Final = 256 * 2**20
"""What the process of a rank takes before the network runs: Python, libraries, small buffers."""
USUAL_DTYPE: Final = "bfloat16"
"""What a checkpoint that does not say its type is taken for."""

CPU: Final = "cpu"
"""Kind of the devices that are slots of a host."""

LIVE_TENSORS: Final = 12
"""Tensors as wide as the residual stream that are alive at once inside a block."""
_MATRICES: Final = 3
"""Matrices of one expert: gate, up and down."""


def weight_bytes(given: MemoryInput, dtype: str | None) -> int | None:
    """Bytes of all weights in `dtype`, or as they lie in their files when it is `None`.

    Without files the number of weights decides, where the configuration gives it.
    """
    facts = given.facts
    stored = facts.weight_dtype or USUAL_DTYPE
    width = DTYPE_BYTES[stored if dtype is None else dtype]
    if facts.weight_bytes is not None:
        return facts.weight_bytes * width // DTYPE_BYTES[stored]
    return None if facts.num_parameters is None else facts.num_parameters * width


def given_dtype(given: MemoryInput) -> str | None:
    """Type that the stage's `dtype` names; `None` where it leaves that to the checkpoint."""
    named = given.stage_args.get("dtype")
    return named if isinstance(named, str) and named in DTYPE_BYTES else None


def stage_dtype(given: MemoryInput) -> str:
    """Type that the stage computes in: what was given, or that of its files."""
    return given_dtype(given) or given.facts.weight_dtype or USUAL_DTYPE


def expert_bytes(given: MemoryInput, whole: int, width: int) -> int:
    """Bytes of all routed experts among `whole` bytes of weights."""
    facts = given.facts
    if not facts.num_experts or facts.moe_intermediate_size is None:
        return 0
    one = _MATRICES * (facts.hidden_size or 0) * facts.moe_intermediate_size * width
    return min(whole, one * facts.num_experts * (facts.num_layers or 0))


def sliced_bytes(given: MemoryInput, whole: int, experts: int) -> int:
    """Bytes that a rank holds of every layer, where `experts` are part of the `whole`.

    Experts are cut by their own axis where there is one, and like all other weights otherwise.
    """
    sliced = given.cut(Part.WIDTH)
    spread = given.pieces.get(Part.EXPERTS, sliced)
    return -(-(whole - experts) // sliced) + -(-experts // spread)


def activation_bytes(given: MemoryInput, *, tokens: int, inner: int, element_bytes: int) -> int:
    """Bytes that a block holds for `tokens`: some tensors as wide as the stream, and `inner`."""
    hidden = given.facts.hidden_size
    return 0 if hidden is None else tokens * (LIVE_TENSORS * hidden + inner) * element_bytes


def target_bytes(given: MemoryInput) -> int | None:
    """Bytes that `gpu_memory_utilization` gives to a rank, when it is said and can be told.

    A slot of a CPU host has no memory of its own to give.
    """
    share, memory = given.stage_args.get("gpu_memory_utilization"), given.device_memory_bytes
    if not isinstance(share, float | int) or memory is None or given.device_kind == CPU:
        return None
    return int(share * memory)
