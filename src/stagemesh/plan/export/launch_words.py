"""What no deploy file says: the launch options of a plan, as the flags that give them."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator

from stagemesh.config.launch import given_options
from stagemesh.config.launch_rules import flag_name
from stagemesh.plan.values import Plan


def launch_words(plan: Plan, known: Container[str] | None = None) -> str:
    """Return the flags of every launch option that is not at its default; empty for none.

    Of those `known` alone, where not all are.
    """
    given = given_options(plan.launch)
    return " ".join(
        word
        for name, value in given.items()
        if known is None or name in known
        for word in _words(name, value)
    )


def _words(name: str, value: object) -> Iterator[str]:
    yield flag_name(name)
    if value is not True:
        yield shlex.quote(str(value))
