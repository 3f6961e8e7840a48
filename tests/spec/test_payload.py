"""What travels on an edge."""

from __future__ import annotations

import pytest

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


def test_a_buffer_is_found_by_its_name() -> None:
    """A missing one is told with those that are there."""
    buffer = Buffer(name="x", dtype="int16", shape=(2, 3), data=memoryview(bytes(12)))
    assert buffer.num_bytes == 12
    payload = Payload(
        buffers=(buffer, Buffer(name="y", dtype="bool", shape=(), data=memoryview(b"0")))
    )
    assert payload.buffer("y").num_bytes == 1
    with pytest.raises(KeyError, match="no buffer `z`; it has `x`, `y`"):
        payload.buffer("z")
    with pytest.raises(KeyError, match="it has none"):
        Payload().buffer("z")


def test_what_a_payload_weighs_is_its_data_its_words_and_itself() -> None:
    """Texts and lists count by their length, single numbers not at all."""
    buffer = Buffer(name="x", dtype="uint8", shape=(5,), data=memoryview(bytes(5)))
    empty = Payload().weight
    assert empty > 0
    heavy = Payload(meta={"text": "abc", "tokens": [1, 2], "n": 7}, buffers=(buffer, buffer))
    assert heavy.weight == empty + 2 * 5 + 8 * (3 + 2)


def test_what_nobody_would_read_is_named() -> None:
    """Metadata and buffers beside the known ones are refused."""
    payload = Payload(meta={"text": "hi"})
    payload.only(meta=("text",))
    with pytest.raises(ValueError, match="`meta` holds `text`, known here: nothing"):
        payload.only()
    payload.release()
