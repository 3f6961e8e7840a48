"""The first words on a stream between hosts: both ends prove that they know the secret.

    dialer -> acceptor   Hello       who it is, and a nonce
    acceptor -> dialer   Challenge   a nonce
    dialer -> acceptor   Proof       HMAC-SHA256 of all that was said so far
    acceptor -> dialer   Accepted    the same, of that and the number it gives | Rejected   why not

These five are all that is understood until then, each at most a kilobyte, all within a deadline,
so a stranger costs little. Nobody is judged before it has proved the secret, but for its version.
An empty secret proves nothing and fits an empty one alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Callable
from typing import Annotated, Final, Literal, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from stagemesh.runtime.messages import PROTOCOL, ProtocolError
from stagemesh.spec.frozen import frozen

HANDSHAKE_S: Final = 5.0
"""How long the whole of it may take."""
ANY_REPLICA: Final = -1
"""Asks for whichever number is free."""
_MAX_BYTES: Final = 1024
_NONCE_BYTES: Final = 32
_LENGTH: Final = struct.Struct(">H")

_Nonce = Annotated[bytes, Meta(min_length=_NONCE_BYTES, max_length=_NONCE_BYTES)]
_Mac = Annotated[bytes, Meta(min_length=32, max_length=32)]
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Refused(ProtocolError):  # noqa: N818  it is a refusal
    """One end does not take the other, and says why; `again` if it may be another time."""

    def __init__(self, reason: str, *, again: bool) -> None:
        """Keep whether it is worth coming again."""
        self.again = again
        super().__init__(reason)


class _Word(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Base of what is said: its fields in order, and no more."""


class Hello(_Word, frozen=True, kw_only=True, tag=0):
    """Who comes, and what for."""

    protocol: _Count = PROTOCOL
    """Version of all messages; the acceptor takes its own alone."""
    role: Literal["replica", "link"]
    """A stage's replica that puts itself at our service, or a stream that was agreed on."""
    stage: _Count
    """Stage of the replica that comes."""
    replica: Annotated[int, Meta(ge=ANY_REPLICA, lt=1 << 31)]
    """Its number, or `ANY_REPLICA`."""
    incarnation: _Count
    """Tells it from an earlier one of that number."""
    fingerprint: Annotated[str, Meta(max_length=64)]
    """Of the plan that it was started with."""
    link: _Count = 0
    """Which stream was agreed on."""
    address: Annotated[str, Meta(max_length=255)] = ""
    """Where others reach a replica that comes."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """The port of that."""
    nonce: _Nonce = b""
    """Random, new for every stream; filled in as it is said."""


class Challenge(_Word, frozen=True, kw_only=True, tag=1):
    """What the proof must be about."""

    nonce: _Nonce


class Proof(_Word, frozen=True, kw_only=True, tag=2):
    """That the dialer knows the secret."""

    mac: _Mac


class Accepted(_Word, frozen=True, kw_only=True, tag=3):
    """That the acceptor knows it too, and what it has decided."""

    number: _Count
    mac: _Mac


class Rejected(_Word, frozen=True, kw_only=True, tag=4):
    """Why not."""

    reason: Annotated[str, Meta(max_length=512)]
    again: bool = False


@frozen
class Guest:
    """Somebody who has come in."""

    hello: Hello
    """Who it is."""
    sock: socket.socket
    """The stream, on which nothing has been said since."""


@frozen
class Verdict:
    """What the acceptor decides about somebody who knows the secret."""

    number: int = 0
    """What it is told: its replica's number."""
    reason: str | None = None
    """Why it is not taken, if it is not."""
    again: bool = False
    """Whether that may be another time."""


Judge: TypeAlias = Callable[[Hello], Verdict]
"""Decides; called once for everybody who has proved the secret."""
Heard = TypeVar("Heard")
_encoder: Final = msgspec.msgpack.Encoder()
_decode_hello: Final = msgspec.msgpack.Decoder(Hello).decode
_decode_proof: Final = msgspec.msgpack.Decoder(Proof).decode
_decode_challenge: Final = msgspec.msgpack.Decoder(Challenge | Rejected).decode
_decode_answer: Final = msgspec.msgpack.Decoder(Accepted | Rejected).decode


async def introduce(sock: socket.socket, hello: Hello, secret: bytes) -> int:
    """Say who we are on a stream that we dialed; return the number that we are given.

    Raises `Refused` when we are not taken, `ProtocolError` when the other end is none of ours,
    and `OSError` when it is gone.
    """
    async with _deadline():
        said = await _say(sock, msgspec.structs.replace(hello, nonce=_nonce()))
        answer, heard = await _hear(sock, _decode_challenge)
        if isinstance(answer, Rejected):
            raise Refused(answer.reason, again=answer.again)
        said += heard
        said += await _say(sock, Proof(mac=_mac(secret, b"dialer", said)))
        verdict, _ = await _hear(sock, _decode_answer)
        if isinstance(verdict, Rejected):
            raise Refused(verdict.reason, again=verdict.again)
        expected = _mac(secret, b"acceptor", said, verdict.number)
        if not hmac.compare_digest(verdict.mac, expected):
            raise ProtocolError("the other end does not know the token")
        return verdict.number


async def receive(sock: socket.socket, secret: bytes, judge: Judge) -> Hello:
    """Hear who comes in on a stream that we accepted, and answer.

    Raises `Refused` when it is not taken, which it has been told, `ProtocolError` when it is none
    of ours, and `OSError` when it is gone.
    """
    async with _deadline():
        hello, said = await _hear(sock, _decode_hello)
        if hello.protocol != PROTOCOL:
            await _reject(sock, f"protocol `{hello.protocol}` is not `{PROTOCOL}`")
        said += await _say(sock, Challenge(nonce=_nonce()))
        proof, heard = await _hear(sock, _decode_proof)
        if not hmac.compare_digest(proof.mac, _mac(secret, b"dialer", said)):
            await _reject(sock, "the token is not the same")
        said += heard
        verdict = judge(hello)
        if verdict.reason is not None:
            await _reject(sock, verdict.reason, again=verdict.again)
        mac = _mac(secret, b"acceptor", said, verdict.number)
        await _say(sock, Accepted(number=verdict.number, mac=mac))
        return hello


async def _reject(sock: socket.socket, reason: str, *, again: bool = False) -> NoReturn:
    await _say(sock, Rejected(reason=reason[:512], again=again))
    raise Refused(f"it was not taken: {reason}", again=again)


async def _say(sock: socket.socket, word: _Word) -> bytes:
    body = _encoder.encode(word)
    frame = _LENGTH.pack(len(body)) + body
    await asyncio.get_running_loop().sock_sendall(sock, frame)
    return frame


async def _hear(sock: socket.socket, decode: Callable[[bytes], Heard]) -> tuple[Heard, bytes]:
    """Read one word and no byte more: what follows belongs to whoever gets the stream."""
    head = await _exactly(sock, _LENGTH.size)
    (length,) = _LENGTH.unpack(head)
    if length > _MAX_BYTES:
        raise ProtocolError(f"a first word of `{length}` bytes is too long")
    body = await _exactly(sock, length)
    try:
        return decode(body), head + body
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"malformed first word: {error}") from error


async def _exactly(sock: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        piece = await loop.sock_recv(sock, count - len(data))
        if not piece:
            raise ConnectionResetError("the other end has gone")
        data += piece
    return data


def _deadline() -> asyncio.Timeout:
    return asyncio.timeout(HANDSHAKE_S)


def _nonce() -> bytes:
    return secrets.token_bytes(_NONCE_BYTES)


def _mac(secret: bytes, who: bytes, said: bytes, number: int = 0) -> bytes:
    text = who + b"\0" + number.to_bytes(8, "big") + said
    return hmac.new(secret, text, hashlib.sha256).digest()
