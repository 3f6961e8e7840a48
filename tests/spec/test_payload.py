"""What travels on an edge."""

from __future__ import annotations

from stagemesh.spec.payload import Buffer, Payload


def test_a_copy_keeps_nothing_of_what_was_borrowed() -> None:
    """It is equal, and stays so when the memory is used for something else."""
    memory = bytearray(b"abcd")
    buffer = Buffer(name="x", dtype="uint8", shape=(4,), data=memoryview(memory))
    borrowed = Payload(meta={"n": 1}, buffers=(buffer,))
    copy = borrowed.copied()
    assert copy == borrowed
    memory[:] = b"efgh"
    assert bytes(copy.buffer("x").data) == b"abcd"
