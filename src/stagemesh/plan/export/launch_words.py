"""What no deploy file says: the launch options of a plan, as the flags that give them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from stagemesh.config.launch import given_options
from stagemesh.config.launch_rules import flag_name
from stagemesh.plan.values import Plan


def launch_words(plan: Plan) -> str:
    """Return the flags of every launch option that is not at its default; empty for none."""
    return " ".join(_words(plan))


def _words(plan: Plan) -> Iterator[str]:
    for name, value in given_options(plan.launch).items():
        yield flag_name(name)
        if value is not True:
            yield shlex.quote(str(value))
