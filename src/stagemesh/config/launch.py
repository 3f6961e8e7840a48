"""How a start spreads over processes and hosts: the launch options, as flags and in the plan."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Final, Literal, TypeAlias

from stagemesh.config.check import Pattern
from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen

Address: TypeAlias = Annotated[str, Pattern(regex=r"\S+", example="127.0.0.1")]
"""A host name or an IP address."""

Port: TypeAlias = Annotated[int, Range(minimum=1, maximum=65535)]
"""A TCP port."""

FileName: TypeAlias = Annotated[str, Pattern(regex=r".+", example="/etc/stagemesh/token")]
"""A file that is read when the start begins."""

Seconds: TypeAlias = Annotated[int, Range(minimum=1)]
"""A deadline."""

NO_STAGE: Final = "none"
"""The `stage_id` of a start that holds the API server and the orchestrator alone."""


@frozen
class LaunchOptions:
    """What one start of several runs, and where it finds the others."""

    stage_id: int | str | None = None
    """Stage that this start runs, `none` for the API server alone; every stage when left out."""
    headless: bool = False
    """Whether this start has no API server of its own."""
    omni_master_address: Address | None = None
    """Where the start of the orchestrator listens."""
    omni_master_port: Port | None = None
    """Port on which it listens."""
    omni_replica_address: Address | None = None
    """Address under which the others reach this headless start."""
    omni_token_file: FileName | None = None
    """File with the secret that all starts of the model share; its owner alone may read it."""
    insecure_no_token: bool = False
    """Whether other hosts may connect without a secret: whoever reaches the ports is let in."""
    omni_tls_cert: FileName | None = None
    """Certificate that this start shows to the others; streams between hosts are under TLS then."""
    omni_tls_key: FileName | None = None
    """Key of that certificate, without a password."""
    omni_tls_ca: FileName | None = None
    """Certificate of the authority that has signed those of all starts."""
    omni_dp_size_local: Annotated[int, Range(minimum=1)] = 1
    """Replicas of the stage that this start runs."""
    api_server_count: Annotated[int, Range(minimum=1)] = 1
    """Processes that serve requests."""
    worker_backend: Literal["multi_process", "ray"] = "multi_process"
    """Who starts the processes of stages."""
    ray_address: Address | None = None
    """Address of the Ray cluster that starts them."""
    omni_heartbeat_timeout: Annotated[float, Range(minimum=0.001)] | None = None
    """Seconds without an answer after which a replica that runs elsewhere counts as dead."""
    stage_init_timeout: Seconds | None = None
    """Seconds that one stage may take until it is ready."""
    init_timeout: Seconds = 600
    """Seconds that all stages together may take until they are ready."""
    shutdown_timeout: Annotated[int, Range(minimum=0)] = 30
    """Seconds that running requests may take to end before a system or a replica is stopped."""


def given_options(options: LaunchOptions) -> dict[str, object]:
    """Return the options that are not at their defaults, by name."""
    values = {item.name: (getattr(options, item.name), item.default) for item in fields(options)}
    return {name: value for name, (value, default) in values.items() if value != default}
