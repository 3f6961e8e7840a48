"""Routing by hash, for the axes that spread requests: which key, and how uneven it may get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Final, Protocol, TypeAlias, cast

from stagemesh.spec.axis import Finding, Said, StackView
from stagemesh.spec.bounds import Range
from stagemesh.spec.patterns import Policy, RouteByStage, Routing

KEY: Final = "request_id"
"""What is hashed when nothing else was said."""
LOAD_BOUND: Final = 1.25
"""The bound when nothing else was said: a quarter above the even share."""

LoadBound: TypeAlias = Annotated[float, Range(minimum=1)]
"""Times the even share of requests that one receiver may hold."""


class HashOptions(Protocol):
    """Options of an axis that can route by hash."""

    @property
    def key(self) -> str | None:
        """What is hashed."""
        ...

    @property
    def load_bound(self) -> float | None:
        """Times the even share that one receiver may hold."""
        ...


def settle_hash(said: Said) -> Said:
    """Fill in key and bound where requests are routed by hash."""
    options = cast("HashOptions", said.options)
    if not _is_hash(said.routing):
        return said
    filled = {
        "key": KEY if options.key is None else options.key,
        "load_bound": LOAD_BOUND if options.load_bound is None else options.load_bound,
    }
    return replace(said, options=replace(options, **filled))  # type: ignore[type-var]


def check_hash(view: StackView, axis: str) -> Iterator[Finding]:
    """Refuse key and bound where nothing is hashed; with one receiver nothing is spread at all.

    A key is the name of something that requests say, so it has one.
    """
    options = cast("HashOptions", view.options)
    if options.key is not None and not options.key.strip():
        yield Finding(
            code="AX049",
            message=f"`key` of `{axis}` on `{view.stage}` names nothing",
            help=f"write what is hashed, such as `session`, or leave it out for `{KEY}`",
            option="key",
        )
        return
    if view.size(axis) == 1 or _is_hash(view.routing):
        return
    given = {"key": options.key, "load_bound": options.load_bound}
    names = [name for name, value in given.items() if value is not None]
    if names:
        listed = " and ".join(f"`{name}`" for name in names)
        yield Finding(
            code="AX048",
            message=f"{listed} of `{axis}` on `{view.stage}` {_need(names)} `routing: hash`",
            help=f"write `routing: hash`, or leave {listed} out",
            option=names[0],
        )


def _need(names: Sequence[str]) -> str:
    return "needs" if len(names) == 1 else "need"


def _is_hash(routing: Routing) -> bool:
    return isinstance(routing, RouteByStage) and routing.policy is Policy.HASH
