"""The first words between hosts."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagemesh.runtime.messages import PROTOCOL, ProtocolError
from stagemesh.runtime.transport import handshake
from stagemesh.runtime.transport.handshake import (
    Accepted,
    Challenge,
    Hello,
    Proof,
    Refused,
    Verdict,
    introduce,
    receive,
)

SECRET = b"a secret of some length"
HELLO = Hello(role="replica", stage=1, replica=-1, incarnation=7, fingerprint="ab")
TAKEN = Verdict(number=3)


async def both(
    dialer: Coroutine[Any, Any, Any], acceptor: Coroutine[Any, Any, Any]
) -> tuple[Any, Any]:
    """Run both ends to their ends, and return what they return or raise."""
    found = await asyncio.gather(dialer, acceptor, return_exceptions=True)
    return found[0], found[1]


def meet(
    ours: bytes = SECRET, theirs: bytes = SECRET, hello: Hello = HELLO, verdict: Verdict = TAKEN
) -> tuple[Any, Any]:
    """Let two ends say their first words."""

    async def run() -> tuple[Any, Any]:
        one, other = sockets()
        with one, other:
            return await both(
                introduce(one, hello, ours), receive(other, theirs, lambda _hello: verdict)
            )

    return asyncio.run(run())


def sockets() -> tuple[socket.socket, socket.socket]:
    """Two ends that do not block."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)  # noqa: FBT003  signature of the standard library
    return ends


@pytest.mark.parametrize("secret", [SECRET, b""], ids=["a token", "none"])
def test_two_ends_with_one_secret_know_each_other(secret: bytes) -> None:
    """The dialer gets its number, the acceptor what the dialer has said of itself."""
    number, hello = meet(secret, secret)
    assert number == 3
    assert msgspec.structs.replace(hello, nonce=b"") == HELLO


@pytest.mark.parametrize(("ours", "theirs"), [(SECRET, b"another"), (b"", SECRET), (SECRET, b"")])
def test_another_secret_is_refused_without_saying_it(ours: bytes, theirs: bytes) -> None:
    """Both ends know why; no message holds either token."""
    one, other = meet(ours, theirs)
    assert isinstance(one, Refused)
    assert str(one) == "the token is not the same"
    assert isinstance(other, ProtocolError)
    assert SECRET.decode() not in f"{one!r} {other!r}"


def test_who_is_not_wanted_hears_why() -> None:
    """The reason of the judge reaches the dialer."""
    one, other = meet(verdict=Verdict(reason="another model"))
    assert (type(one), str(one)) == (Refused, "another model")
    assert "another model" in str(other)


def test_another_version_is_refused_before_anything_else() -> None:
    """It may not even know how to prove the secret."""
    old = msgspec.structs.replace(HELLO, protocol=PROTOCOL + 1)
    one, _ = meet(ours=b"unknown", hello=old)
    assert str(one) == f"protocol `{PROTOCOL + 1}` is not `{PROTOCOL}`"


def test_nobody_is_judged_before_the_proof() -> None:
    """What somebody without the secret says of itself is not even looked at."""

    def judge(hello: Hello) -> Verdict:
        raise AssertionError(hello)

    async def run() -> tuple[Any, Any]:
        one, other = sockets()
        with one, other:
            return await both(introduce(one, HELLO, b"wrong"), receive(other, SECRET, judge))

    one, _ = asyncio.run(run())
    assert isinstance(one, Refused)


def test_an_acceptor_that_does_not_know_the_secret_is_found_out() -> None:
    """A place that lets everybody in is none of ours."""

    async def impostor(sock: socket.socket) -> None:
        await handshake._hear(sock, msgspec.msgpack.Decoder(Hello).decode)
        await handshake._say(sock, Challenge(nonce=bytes(32)))
        _, heard = await handshake._hear(sock, msgspec.msgpack.Decoder(Proof).decode)
        await handshake._say(sock, Accepted(number=0, mac=bytes(32)))
        assert heard

    async def run() -> tuple[Any, Any]:
        one, other = sockets()
        with one, other:
            return await both(introduce(one, HELLO, SECRET), impostor(other))

    one, _ = asyncio.run(run())
    assert (type(one), str(one)) == (ProtocolError, "the other end does not know the token")


def test_a_proof_is_good_for_one_stream_and_one_direction() -> None:
    """What was recorded on one stream proves nothing on the next, nor sent back to its maker."""

    async def record(replayed: list[bytes]) -> list[bytes]:
        heard: list[bytes] = []
        one, other = sockets()
        with one, other:

            async def dialer() -> None:
                loop = asyncio.get_running_loop()
                if not replayed:
                    await introduce(one, HELLO, SECRET)
                    return
                await loop.sock_sendall(one, replayed[0])
                await handshake._hear(one, msgspec.msgpack.Decoder(Challenge).decode)
                await loop.sock_sendall(one, replayed[1])

            real = handshake._hear

            async def listening(sock: socket.socket, decode: Any) -> Any:  # noqa: ANN401  a stand-in
                word, raw = await real(sock, decode)
                if sock is other:
                    heard.append(raw)
                return word, raw

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(handshake, "_hear", listening)
                _, taken = await both(dialer(), receive(other, SECRET, lambda _hello: TAKEN))
            if replayed:
                assert "the token is not the same" in str(taken)
            return heard

    heard = asyncio.run(record([]))
    asyncio.run(record(heard))


@settings(max_examples=60)
@given(noise=st.binary(max_size=3000))
def test_noise_is_refused_and_costs_nothing(noise: bytes) -> None:
    """Whatever a stranger sends ends in `ProtocolError` or its going, in a few KiB of memory."""

    async def run() -> BaseException:
        one, other = sockets()
        with other:
            with one:
                await asyncio.get_running_loop().sock_sendall(one, noise)
            tracemalloc.start()
            try:
                [found] = await asyncio.gather(
                    receive(other, SECRET, lambda _hello: TAKEN), return_exceptions=True
                )
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 64 * 1024
        assert isinstance(found, BaseException)
        return found

    assert isinstance(asyncio.run(run()), ProtocolError | ConnectionError)


def test_a_first_word_that_is_long_is_not_waited_for() -> None:
    """No memory is taken for what a stranger says it will send."""

    async def run() -> None:
        one, other = sockets()
        with one, other:
            await asyncio.get_running_loop().sock_sendall(one, b"\xff\xff")
            with pytest.raises(ProtocolError, match="too long"):
                await receive(other, SECRET, lambda _hello: TAKEN)

    asyncio.run(run())


def test_silence_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says nothing does not stay."""
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.01)

    async def run() -> None:
        one, other = sockets()
        with one, other, pytest.raises(TimeoutError):
            await receive(other, SECRET, lambda _hello: TAKEN)

    asyncio.run(run())
