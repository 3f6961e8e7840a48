"""How a start spreads over processes and hosts, as part of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stagemesh.config.launch import NO_STAGE, LaunchOptions, given_options
from stagemesh.config.launch_rules import flag_name
from stagemesh.config.settings import Sourced
from stagemesh.plan.place import Placement
from stagemesh.plan.setup import Executor
from stagemesh.plan.values import Plan, StagePlan

_CPU_KIND: Final = "cpu"
_RAY: Final = "ray"
"""The back end, and the executor, that has Ray start processes."""
_ELSEWHERE: Final = frozenset(
    {
        "api_server_count",
        "init_timeout",
        "insecure_no_token",
        "shutdown_timeout",
        "stage_id",
        "stage_init_timeout",
    }
)
"""Options that the runtime acts on, or that the reasons of the frontends are about."""
_BY_RAY: Final = frozenset(
    {
        "omni_heartbeat_timeout",
        "omni_master_address",
        "omni_master_port",
        "omni_tls_ca",
        "omni_tls_cert",
        "omni_tls_key",
        "omni_token_file",
        "ray_address",
        "worker_backend",
    }
)
"""Options that it acts on where Ray starts the stages."""
_WATCH: Final = "omni_heartbeat_timeout"
"""What the start with the orchestrator acts on alone: it watches the others."""


def launch_options(given: Mapping[str, Sourced[object]]) -> LaunchOptions:
    """Fill in the defaults of what was given."""
    values = {name: sourced.value for name, sourced in given.items()}
    return LaunchOptions(**values)  # type: ignore[arg-type]  # each was checked against its type


def is_by_ray(options: LaunchOptions, stage: StagePlan) -> bool:
    """Whether Ray starts the processes of a stage."""
    return _is_rays(options, stage.setup.executor)


def _is_rays(options: LaunchOptions, executor: Executor) -> bool:
    return _RAY in (options.worker_backend, executor)


def is_spread(stage: StagePlan) -> bool:
    """Whether it starts every rank on its own, on whichever node has room."""
    return stage.setup.executor == _RAY and stage.world_size > 1


def launch_reasons(options: LaunchOptions, executors: Iterable[Executor]) -> Iterator[str]:
    """Say which options nothing acts on in a start like this."""
    has_ray = _RAY in (options.worker_backend, *executors)
    effective = _ELSEWHERE | (_BY_RAY if has_ray else frozenset())
    for name in given_options(options):
        if name == _WATCH and options.headless:
            yield f"nothing comes of `{flag_name(name)}` with `{flag_name('headless')}`"
        elif name not in effective and options.stage_id is None:
            yield f"nothing comes of `{flag_name(name)}` without `{flag_name('stage_id')}`"


def ray_reasons(
    options: LaunchOptions,
    placement: Placement,
    names: Mapping[int, str],
    executors: Mapping[int, Executor],
) -> Iterator[str]:
    """Say what of the starts of stages by Ray nobody can carry out."""
    rays = [stage_id for stage_id in names if _is_rays(options, executors[stage_id])]
    if options.stage_id is not None:
        for stage_id in rays:
            yield f"`{names[stage_id]}`: Ray starts ranks only where one start runs all stages"
    if placement.devices.kind == _CPU_KIND or not rays:
        return
    for stage_id in names:
        if stage_id not in rays:
            yield f"`{names[stage_id]}`: Ray does not start it, and would give others its devices"
    yield from _badly_shared(placement, {stage_id: names[stage_id] for stage_id in rays})


def _badly_shared(placement: Placement, names: Mapping[int, str]) -> Iterator[str]:
    """Say which stages share devices in a way that Ray cannot keep: it parts single ones alone."""
    holders: dict[int, list[tuple[str, int]]] = {}
    for stage_id, name in names.items():
        for devices in placement.replicas[stage_id]:
            for device in devices:
                holders.setdefault(device, []).append((name, len(devices)))
    shared = (held for held in holders.values() if len(held) > 1 and max(n for _, n in held) > 1)
    for stages in dict.fromkeys(" and ".join(dict.fromkeys(_told(held))) for held in shared):
        yield f"Ray gives no part of several devices, and {stages} share some"


def _told(held: Iterable[tuple[str, int]]) -> Iterator[str]:
    return (f"`{name}`" for name, _ in held)


def launch_lines(plan: Plan) -> Iterator[str]:
    """Say which stage this start runs, and what that means for flags; nothing when it runs all."""
    stage_id = plan.launch.stage_id
    if stage_id == NO_STAGE:
        yield "this start runs no stage, so flags for all stages reach none"
    elif isinstance(stage_id, int):
        name = plan.stage(stage_id).name
        yield f"this start runs `{name}` alone, and flags for all stages reach it alone"
