"""Tensors and payload buffers share memory and survive the way there and back."""

from __future__ import annotations

import gc

import pytest
import torch

from stagemesh.models._tensors import from_buffer, to_buffer
from stagemesh.spec.payload import DTYPE_BYTES, Buffer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", DTYPE_BYTES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_every_dtype_and_shape_comes_back(name: str, shape: tuple[int, ...]) -> None:
    """Also from read-only memory, without a warning, and after the buffer object is gone."""
    tensor = (torch.rand(shape) * 5).to(getattr(torch, name))
    buffer = to_buffer("x", tensor)
    assert (buffer.name, buffer.dtype, buffer.shape) == ("x", name, shape)
    assert buffer.data.nbytes == buffer.num_bytes
    copy = Buffer(name="x", dtype=name, shape=shape, data=memoryview(bytes(buffer.data)))
    back = from_buffer(copy)
    del copy
    gc.collect()
    assert torch.equal(back, tensor)
    assert torch.equal(from_buffer(buffer), tensor)


def test_memory_is_shared() -> None:
    """Nothing is copied in either direction."""
    tensor = torch.zeros(4)
    view = from_buffer(to_buffer("x", tensor))
    tensor[2] = 7.0
    assert view[2] == 7.0


def test_a_transposed_tensor_arrives_in_row_major_order() -> None:
    """What is not contiguous is copied."""
    tensor = torch.arange(6.0).reshape(2, 3).T
    assert torch.equal(from_buffer(to_buffer("x", tensor)), tensor)


def test_a_dtype_that_payloads_do_not_carry_is_refused() -> None:
    """The error names the tensor."""
    with pytest.raises(TypeError, match="`x`"):
        to_buffer("x", torch.zeros(2, dtype=torch.complex64))


def test_bytes_that_do_not_fit_the_shape_are_refused() -> None:
    """The error says both counts."""
    buffer = Buffer(name="x", dtype="float32", shape=(3,), data=memoryview(bytes(8)))
    with pytest.raises(ValueError, match="`8` bytes"):
        from_buffer(buffer)
