"""Which launcher a plan asks for."""

from __future__ import annotations

from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.head import HeadLauncher
from stagemesh.runtime.launchers.local import LocalLauncher
from stagemesh.runtime.process import Launcher


def launcher_of(plan: Plan) -> Launcher:
    """Return the launcher; needs a running loop. Raises what `HeadLauncher` raises."""
    return LocalLauncher() if plan.launch.stage_id is None else HeadLauncher(plan)
