"""The common suite: it passes a connector of another make, and catches one that cheats."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from stagemesh.spec.connector import ConnectorSpec, Reach, Ticket
from stagemesh.spec.payload import ALIGNMENT, DTYPE_BYTES, Buffer, Payload
from stagemesh.spec.pipeline import NoOptions
from stagemesh.testing.connector_conformance import ConnectorConformance
from stagemesh.testing.connector_edge import open_fds

_ROOM = 8
_SHELF: dict[bytes, Payload] = {}
_KEYS = itertools.count()


class ShelfSender:
    """Keeps payloads on a shelf of this process; eight at a time."""

    def __init__(self, options: object) -> None:
        """Begin with an empty shelf."""
        del options
        self._keys: dict[int, bytes] = {}
        self._numbers = itertools.count()

    def put(self, payload: Payload) -> Ticket | None:
        """Copy onto the shelf."""
        if len(self._keys) >= _ROOM:
            return None
        number, key = next(self._numbers), b"shelf-%d" % next(_KEYS)
        _SHELF[key] = replace(payload, buffers=tuple(map(_copy, payload.buffers)))
        self._keys[number] = key
        return Ticket(number=number, body=key)

    def released(self, number: int) -> None:
        """Take it off the shelf."""
        _SHELF.pop(self._keys.pop(number, b""), None)

    def close(self) -> None:
        """Clear the shelf."""
        for number in list(self._keys):
            self.released(number)


class ShelfReceiver:
    """Takes payloads from the shelf."""

    def __init__(self, options: object, on_release: Callable[[int], None]) -> None:
        """Releases go to `on_release`."""
        del options
        self._on_release = on_release

    def get(self, ticket: Ticket) -> Payload:
        """Look the ticket up."""
        for fd in ticket.fds:
            os.close(fd)
        if ticket.body not in _SHELF or ticket.fds:
            raise ValueError("nothing lies there")
        left = [ticket.number]
        return replace(
            _SHELF[ticket.body], release=lambda: self._on_release(left.pop()) if left else None
        )

    def own(self, body: bytes) -> Payload | None:
        """Nothing lies in a body."""
        del body
        return None

    def close(self) -> None:
        """Nothing is held."""


class ForgetfulSender(ShelfSender):
    """Never takes anything off the shelf."""

    def released(self, number: int) -> None:
        """Forget to."""


class SharingSender(ShelfSender):
    """Hands over the caller's own memory although it does not say so."""

    def put(self, payload: Payload) -> Ticket | None:
        """Copy nothing."""
        ticket = super().put(payload)
        if ticket is not None:
            _SHELF[ticket.body] = payload
        return ticket


class LeavingSender(ShelfSender):
    """Leaves a file behind, as connectors with named segments do."""

    def close(self) -> None:
        """Forget about it."""
        os.memfd_create("left")


class DoubleReceiver(ShelfReceiver):
    """Tells of a release each time."""

    def get(self, ticket: Ticket) -> Payload:
        """Keep no count."""
        release = partial(self._on_release, ticket.number)
        return replace(super().get(ticket), release=release)


def _copy(buffer: Buffer) -> Buffer:
    if buffer.dtype not in DTYPE_BYTES or buffer.data.nbytes != buffer.num_bytes:
        raise ValueError("impossible buffer")
    if not buffer.data.c_contiguous or min(buffer.shape, default=0) < 0:
        raise ValueError("impossible buffer")
    return replace(buffer, data=_aligned(buffer.data))


def _aligned(data: memoryview) -> memoryview:
    numpy = pytest.importorskip("numpy")
    room = numpy.zeros(data.nbytes + ALIGNMENT, dtype="uint8")
    start = -room.ctypes.data % ALIGNMENT
    room[start : start + data.nbytes] = data
    return memoryview(room)[start : start + data.nbytes].toreadonly()


SHELF = ConnectorSpec(
    name="shelf",
    config_names=("ShelfConnector",),
    summary="a dictionary of this process",
    reach=Reach.PROCESS,
    sender=f"{__name__}:ShelfSender",
    receiver=f"{__name__}:ShelfReceiver",
)


@pytest.fixture(autouse=True)
def _references_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    """References of this file lead to its own classes, under whatever name it was imported."""
    found = {
        SHELF.sender: ShelfSender,
        SHELF.receiver: ShelfReceiver,
        "forgetful": ForgetfulSender,
        "sharing": SharingSender,
        "leaving": LeavingSender,
        "double": DoubleReceiver,
    }
    monkeypatch.setattr(
        "stagemesh.testing.connector_edge.resolve", lambda reference: found[reference]
    )


class TestShelf(ConnectorConformance):
    """A connector that works quite differently passes."""

    spec = SHELF
    options = NoOptions()


@pytest.mark.parametrize(
    ("end", "cheat", "case"),
    [
        ("sender", "forgetful", "test_a_full_edge_says_so_and_has_room_after_a_release"),
        ("sender", "forgetful", "test_room_comes_back_in_any_order"),
        ("sender", "forgetful", "test_a_ticket_that_was_never_got_gives_its_room_back"),
        ("sender", "sharing", "test_the_sender_may_change_its_memory_after_put"),
        ("sender", "leaving", "test_nothing_is_left_behind"),
        ("receiver", "double", "test_a_payload_is_released_once"),
        ("receiver", "double", "test_payloads_are_released_from_any_thread"),
    ],
)
def test_a_connector_that_cheats_is_caught(end: str, cheat: str, case: str) -> None:
    """The suite fails for ends that break one promise each."""

    class Suite(ConnectorConformance):
        spec = replace(SHELF, **{end: cheat})  # type: ignore[arg-type]
        options = NoOptions()

    with pytest.raises(AssertionError):
        getattr(Suite(), case)()
    for fd in open_fds():
        if "memfd:left" in fd:
            os.close(int(fd.split()[0]))
