"""What crosses the socket between the parent and a frontend."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest

from stagemesh.runtime.load import Times
from stagemesh.serve.frontends.words import (
    Begin,
    Failed,
    Flaw,
    Link,
    Look,
    Ping,
    Pong,
    Reading,
    Ready,
    Restore,
    Restored,
    Seen,
    Stop,
    Tell,
    Told,
    Word,
)

WORDS: tuple[Word, ...] = (
    Begin(
        plan="x" * 3_000_000,
        frontend=1,
        key=b"secret",
        queue_limit=None,
        max_request_bytes=1,
        max_unread_bytes=2,
        log_format="json",
        debug=True,
    ),
    Stop(),
    Look(number=3),
    Ping(number=6),
    Restore(number=4, stage="one"),
    Told(number=5, status=503, content_type="text/plain", body=b"\xff"),
    Ready(),
    Failed(message="no", stage="one", flaws=(Flaw(code="SV004", message="taken", help=None),)),
    Seen(
        number=3,
        state={"state": "serving", "stages": [{"replicas": [{"pid": 7, "reason": None}]}]},
        readings=(
            Reading(name="stage_up", labels=("one", "0"), value=1.0),
            Reading(name="stage_step_s", labels=("one", "0"), value=Times(total_s=0.5)),
        ),
    ),
    Pong(number=6),
    Restored(number=4, failed=Failed(message="no")),
    Tell(number=5, what="metrics", accept="text/plain"),
)


def test_every_word_arrives_as_it_was_said() -> None:
    """In order, however long; then the end is heard."""

    async def run() -> list[Word | None]:
        one, other = [await Link.over(end) for end in socket.socketpair()]

        async def speak() -> None:
            for word in WORDS:
                one.say(word)
            await one.flush()
            one.say(Ready())  # nobody hears it any more, which is no error

        speaking = asyncio.ensure_future(speak())
        heard = [await other.hear() for _ in range(len(WORDS) + 1)]
        await speaking
        other.close()
        return heard

    assert asyncio.run(run()) == [*WORDS, None]


def test_what_is_no_word_is_refused() -> None:
    """It is not taken for the end."""

    async def run() -> None:
        near, far = socket.socketpair()
        link = await Link.over(near)
        with far:
            far.sendall(b"\x00\x00\x00\x02{}")
            try:
                await link.hear()
            finally:
                link.close()

    with pytest.raises(msgspec.MsgspecError):
        asyncio.run(run())
