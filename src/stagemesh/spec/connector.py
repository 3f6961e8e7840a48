"""The contract of a connector: how payloads cross one edge between two stage replicas.

The runtime owns the stream between both ends and its order; the connector owns the memory. A
sender turns a payload into a `Ticket`, the runtime carries the ticket over the stream, the
receiver turns it back into a borrowed payload. Releasing that payload makes the runtime carry the
ticket's number back to `Sender.released`. So readiness is always pushed, and no connector polls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol, TypeAlias

from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload
from stagemesh.spec.pipeline import NoOptions


class Reach(Enum):
    """How far a connector carries."""

    PROCESS = "process"
    HOST = "host"
    NETWORK = "network"


@frozen
class Ticket:
    """What travels over the stream for one payload."""

    number: int
    """Names the payload on this edge until it is released; then it may be used again."""
    body: bytes
    """What the receiver needs to find it; small payloads lie in here whole."""
    fds: tuple[int, ...] = ()
    """Descriptors passed along; the runtime closes the sender's copies it was given once sent."""
    bulk: tuple[memoryview, ...] = ()
    """Bytes that travel behind the message itself, where no memory is shared; as sent they are the
    sender's own and unchanged until released, as received they are one aligned piece."""


class Sender(Protocol):
    """The producing end of one edge; all calls come from one thread."""

    def put(self, payload: Payload) -> Ticket | None:
        """Copy a payload out, so that the caller may change it afterwards.

        One that works `by_reference` copies nothing: there the caller leaves the memory alone.
        Returns `None` when there is no room before something is released. Raises `ValueError` for a
        payload that can never be carried, and its kind `ConnectorError` when what carries it is
        missing now.
        """
        ...

    def released(self, number: int) -> None:
        """The receiver is done with that ticket's payload; unknown numbers are ignored."""
        ...

    def close(self) -> None:
        """Free everything, carried or not; calling it again does nothing."""
        ...


class Receiver(Protocol):
    """The consuming end of one edge; all calls come from one thread, releases from any."""

    def get(self, ticket: Ticket) -> Payload:
        """Turn a ticket into a borrowed payload; takes over the ticket's descriptors.

        Raises `ValueError` for a ticket that does not describe memory this edge shares, and its
        kind `ConnectorError` when that memory cannot be had now. Later tickets are not the worse
        for it.
        """
        ...

    def own(self, body: bytes) -> Payload | None:
        """Turn the body of a ticket that came alone into a payload that is the consumer's own.

        `None` where it is to be borrowed with `get`. What is returned lies in the body, aligned or
        not, and is never released. Raises as `get` does.
        """
        ...

    def close(self) -> None:
        """Free everything; payloads still borrowed stay readable until they are released."""
        ...


Endpoints: TypeAlias = Callable[[object], Mapping[str, str]]
"""Returns the addresses among a connector's options, such as `host:50051`, by option."""


BulkLimit: TypeAlias = Callable[[object], int]
"""Returns, for a connector's options, the most bytes that one of its tickets has as bulk."""


def _no_endpoints(_options: object) -> Mapping[str, str]:
    return {}


def _no_bulk(_options: object) -> int:
    return 0


@frozen
class ConnectorSpec:
    """The declaration of a connector, exported as `CONNECTOR` by `connectors/<name>.py`."""

    name: str
    """The file's name."""
    config_names: tuple[str, ...]
    """Names in deploy files, such as `SharedMemoryConnector`."""
    summary: str
    """One line for listings."""
    reach: Reach
    """How far it carries."""
    is_default: bool = False
    """Whether it carries the edges for which no connector was named; one of all connectors does."""
    options: type = NoOptions
    """Dataclass of what `extra` may hold."""
    shared_options: frozenset[str] | None = None
    """Options that the connector of the same name has in vllm-omni, too; `None` where it has none
    of that name."""
    sender: str | None = None
    """Reference of a function `(options) -> Sender`; `None` when it only plans yet."""
    receiver: str | None = None
    """Reference of a `ReceiverFactory`; `None` when it only plans yet."""
    local_options: tuple[str, ...] = ()
    """Options that are each host's own; all others must be the same at both ends."""
    by_reference: bool = False
    """Whether receivers are given the sender's own memory, so that nothing is copied."""
    blocking: bool = False
    """Whether both ends wait for a service, so that each is given a thread of its own."""
    endpoints: Endpoints = _no_endpoints
    """Which services it meets at; two of them cannot have one address."""
    bulk_limit: BulkLimit = _no_bulk
    """How much bulk a ticket may have; the stream ends that brings more."""
    planning_only: str | None = None
    """Why it can be planned but not run yet, or `None` when it runs."""


class SenderFactory(Protocol):
    """What `ConnectorSpec.sender` refers to."""

    def __call__(self, options: object) -> Sender:
        """Make the producing end."""
        ...


class ReceiverFactory(Protocol):
    """What `ConnectorSpec.receiver` refers to."""

    def __call__(self, options: object, on_release: Callable[[int], None]) -> Receiver:
        """Make the consuming end; `on_release` may be called from any thread."""
        ...
