"""How a start spreads over processes and hosts, as part of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stagemesh.config.launch import NO_STAGE, LaunchOptions, given_options
from stagemesh.config.launch_rules import flag_name
from stagemesh.config.settings import Sourced
from stagemesh.plan.values import Plan

_ELSEWHERE: Final = frozenset(
    {
        "api_server_count",
        "init_timeout",
        "insecure_no_token",
        "shutdown_timeout",
        "stage_init_timeout",
    }
)
"""Options that the runtime acts on, or that the reasons of the frontends are about."""


def launch_options(given: Mapping[str, Sourced[object]]) -> LaunchOptions:
    """Fill in the defaults of what was given."""
    values = {name: sourced.value for name, sourced in given.items()}
    return LaunchOptions(**values)  # type: ignore[arg-type]  # each was checked against its type


def launch_reasons(options: LaunchOptions) -> Iterator[str]:
    """Say which options nothing acts on yet."""
    for name in given_options(options):
        if name not in _ELSEWHERE:
            yield f"the runtime does not act on `{flag_name(name)}` yet"


def launch_lines(plan: Plan) -> Iterator[str]:
    """Say which stage this start runs, and what that means for flags; nothing when it runs all."""
    stage_id = plan.launch.stage_id
    if stage_id == NO_STAGE:
        yield "this start runs no stage, so flags for all stages reach none"
    elif isinstance(stage_id, int):
        name = plan.stage(stage_id).name
        yield f"this start runs `{name}` alone, and flags for all stages reach it alone"
