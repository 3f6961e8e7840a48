"""Messages and frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.runtime import messages
from stagemesh.runtime.load import Load, Times
from stagemesh.runtime.messages import FRAME_HEAD, Message, ProtocolError

KEY = messages.Key(rid="r", epoch=3)
SAMPLES: list[Message] = [
    messages.Setup(protocol=1, plan="{}", stage=0, replica=1),
    messages.PeerUp(stage=None, replica=0),
    messages.Welcome(),
    messages.Stop(),
    messages.Ready(load_s=0.5),
    messages.Fatal(reason="no weights"),
    messages.Submit(key=KEY, params={"seed": 1, "stop": ["."]}, targets={1: (0, 0)}),
    messages.Cancel(key=KEY),
    messages.Progress(key=KEY, units={"tokens": 3.0}),
    messages.Finished(key=KEY, units={}, seconds=1.0, first_output_s=None),
    messages.Failed(key=KEY, invalid=True, message="too long"),
    messages.Cancelled(key=KEY),
    messages.Chunk(key=KEY, seq=0, number=7, body=b"x", last=True),
    messages.Ack(numbers=(7,)),
    messages.Pong(number=1, step_s=0.5, load=Load(running=1, steps=Times(total_s=0.5))),
    messages.Marks(
        key=KEY,
        submitted=1.0,
        started=1.5,
        over=None,
        closed=2.0,
        hops=[messages.Hop(source=0, seq=0, num_bytes=9, sent=1.25, taken=1.5)],
    ),
]


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_survives_its_frame(message: Message) -> None:
    """What is decoded equals what was encoded, for every kind."""
    assert messages.decode(messages.encode(message)[FRAME_HEAD.size :]) == message


@given(noise=st.binary(max_size=100))
def test_noise_is_a_protocol_error_or_a_message(noise: bytes) -> None:
    """No bytes whatever make the decoder raise anything else."""
    try:
        message = messages.decode(noise)
    except ProtocolError:
        return
    assert isinstance(message, Message)


@given(data=st.data(), message=st.sampled_from(SAMPLES))
def test_a_damaged_message_is_an_error_or_another_message(
    data: st.DataObject, message: Message
) -> None:
    """Cut, lengthened or changed anywhere, it is refused or is a valid message."""
    body = bytearray(messages.encode(message)[FRAME_HEAD.size :])
    cut = data.draw(st.integers(0, len(body)))
    damaged = bytes(body[:cut]) + data.draw(st.binary(max_size=4)) + bytes(body[cut + 1 :])
    try:
        found = messages.decode(damaged)
    except ProtocolError:
        return
    assert messages.decode(messages.encode(found)[FRAME_HEAD.size :]) == found


def test_a_message_that_is_too_long_is_not_sent() -> None:
    """A frame above the limit is refused where it is made."""
    with pytest.raises(ProtocolError, match="too long"):
        messages.encode(messages.Fatal(reason="x" * (messages.MAX_FRAME_BYTES + 1)))
