"""Which launcher a plan asks for."""

from __future__ import annotations

from stagemesh.plan.launch import is_by_ray
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.head import Entrance, HeadLauncher
from stagemesh.runtime.launchers.local import LocalLauncher
from stagemesh.runtime.launchers.ray import RayLauncher
from stagemesh.runtime.launchers.ray_cluster import load_ray
from stagemesh.runtime.process import Launcher


def launcher_of(plan: Plan) -> Launcher:
    """Return the launcher; needs a running loop.

    Raises what `HeadLauncher` and its `Entrance` raise, and `StartupError` without Ray where it is
    asked for.
    """
    if any(is_by_ray(plan.launch, stage) for stage in plan.stages):
        return RayLauncher(plan, load_ray())
    if plan.launch.stage_id is None:
        return LocalLauncher(plan)
    return HeadLauncher(plan, Entrance.of(plan.launch))
