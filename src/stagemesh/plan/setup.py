"""How the processes of one stage are set up: what starts them, where they run, which kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from stagemesh.spec.frozen import frozen

Runner: TypeAlias = Literal["v1", "v2"]
"""Generation of the model runner."""
Executor: TypeAlias = Literal["uni", "mp", "ray", "external_launcher"]
"""How the ranks of a stage are started."""

Restart: TypeAlias = Literal["never", "on_failure"]
"""Whether a replica that died is started again."""


@frozen
class RankBinding:
    """What one rank is bound to; `None` where it follows from the rank's device."""

    node: int | None
    """NUMA node."""
    cpus: str | None
    """CPU list, such as `2-3`."""


@frozen
class NumaPlan:
    """Binding of a stage's processes to NUMA nodes."""

    binds: Literal["engine", "workers"]
    """Who takes the CPU lists: the process of the engine where the rank runs inside it, else the
    ranks' own, while the engine keeps the wider node."""
    replicas: tuple[tuple[RankBinding, ...], ...]
    """Bindings of the ranks of each replica."""


@frozen
class MpsPlan:
    """Whether a stage shares its device through CUDA MPS."""

    off_because: str | None
    """Why it does not; `None` when it does."""
    pipe_directories: tuple[str | None, ...] = ()
    """Daemon of each replica: empty for a private one; `None` for that of the parent environment,
    or a private one where it has none."""


@frozen
class SharePlan:
    """The share of each of its devices that a stage may use."""

    share: float
    """Share of one rank."""
    memory_bytes: int | None
    """The same in bytes; `None` when the memory of a device is not known."""


@frozen
class KernelsPlan:
    """Kernels that were chosen, under the names that engines know them by; `None` for no choice."""

    attention: Mapping[str, object] = field(default_factory=dict)
    """Kernels of attention: `default`, and `per_role` for some layers."""
    moe: str | None = None
    """Kernels of mixture-of-experts layers."""
    linear: str | None = None
    """Kernels of linear layers."""


@frozen
class RecoveryPlan:
    """What happens when a replica dies or hangs."""

    restart: Restart = "on_failure"
    """Whether one that died is started again."""
    max_restarts: int = 3
    """Most restarts of one replica within the window."""
    restart_window: int = 600
    """Seconds over which restarts are counted."""
    restart_delay: float = 0.5
    """Seconds before the first restart; each further one waits twice as long."""
    step_timeout: float = 300.0
    """Seconds until a step counts as hung; the replica is ended after twice as long."""


@frozen
class StageSetup:
    """All of it for one stage."""

    runner: Runner = "v1"
    """Generation of the model runner."""
    executor: Executor = "uni"
    """How its ranks are started: in the process (`uni`), as processes (`mp`), or by others."""
    numa: NumaPlan | None = None
    """Its binding to NUMA nodes."""
    mps: MpsPlan | None = None
    """CUDA MPS, where it was asked for."""
    share: SharePlan | None = None
    """Its share of device memory, where one was given."""
    kernels: KernelsPlan = field(default_factory=KernelsPlan)
    """Its kernels."""
    host: int | None = None
    """Stage in whose processes it runs; `None` where it has its own."""
    recovery: RecoveryPlan = field(default_factory=RecoveryPlan)
    """What happens when one of its replicas dies or hangs."""
