"""Torch tensors to payload buffers and back, without copying bulk data.

Both directions share memory with their argument. A buffer made here keeps its tensor alive; a
tensor made here keeps the buffer's memory object alive but not *valid*: after `Payload.release` the
producer may overwrite it, so a caller copies (`.clone()`) what it keeps.
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np
import torch

from stagemesh.spec.payload import DTYPE_BYTES, Buffer

_DTYPES: Final[dict[str, torch.dtype]] = {name: getattr(torch, name) for name in DTYPE_BYTES}
_NAMES: Final[dict[torch.dtype, str]] = {dtype: name for name, dtype in _DTYPES.items()}


def to_buffer(name: str, tensor: torch.Tensor) -> Buffer:
    """Wrap `tensor` (any shape and device) as the buffer `name`.

    Copies only what is not contiguous on the CPU. Raises `TypeError` for a dtype that payloads do
    not carry.
    """
    if tensor.dtype not in _NAMES:
        raise TypeError(f"tensor `{name}` has dtype `{tensor.dtype}`, which no payload carries")
    host = tensor.detach().to("cpu").contiguous()
    data = memoryview(host.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # numpy's stub
    return Buffer(name=name, dtype=_NAMES[tensor.dtype], shape=tuple(host.shape), data=data)


def from_buffer(buffer: Buffer) -> torch.Tensor:
    """Return a CPU tensor of the buffer's dtype and shape that reads the buffer's own memory.

    The tensor must not be written to and is valid until the payload is released. Raises
    `ValueError` when the buffer's bytes do not fit its shape.
    """
    if buffer.data.nbytes != buffer.num_bytes:
        raise ValueError(
            f"buffer `{buffer.name}` has `{buffer.data.nbytes}` bytes, "
            f"its shape needs `{buffer.num_bytes}`"
        )
    dtype = _DTYPES[buffer.dtype]
    if buffer.num_bytes == 0:
        return torch.empty(buffer.shape, dtype=dtype)
    return torch.frombuffer(_writable(buffer.data), dtype=dtype).reshape(buffer.shape)


def _writable(data: memoryview) -> memoryview | ctypes.Array[ctypes.c_ubyte]:
    """Return `data` in a form `torch.frombuffer` takes without a warning about read-only memory."""
    if not data.readonly:
        return data
    address = np.frombuffer(data, dtype=np.uint8).ctypes.data
    borrowed = (ctypes.c_ubyte * data.nbytes).from_address(address)
    borrowed.owner = data  # type: ignore[attr-defined]  # keeps the memory as long as the tensor lives
    return borrowed
