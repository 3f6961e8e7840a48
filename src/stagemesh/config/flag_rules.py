"""What is declared about flags beside the fields themselves: spellings, groups and special reach.

All of it is data about field names. A field that is not named here has the flag that follows from
its name and reaches every stage that can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from stagemesh.config.kind_fields import Object
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType


@frozen
class StartFields:
    """What can be said of all stages only by a flag or a Python argument."""

    default_sampling_params: Object | None = None
    """Request parameters that hold when a request does not give them, by stage name or number."""
    omni_lb_policy: Literal["random", "round-robin", "least-queue-length", "hash"] | None = None
    """How requests are spread over the replicas of every stage that has some."""


SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "diffusion_attention_config": ("-dac",),
    "omni_master_address": ("-oma",),
    "omni_master_port": ("-omp",),
    "omni_replica_address": ("-ora",),
    "ring_degree": ("--ring",),
    "ulysses_degree": ("--usp",),
}
"""Further flags of a field."""

NEGATIVE_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "dlo_use_allgather": ("--dlo-no-use-allgather",),
    "enable_multithread_weight_load": ("--disable-multithread-weight-load",),
}
"""Further flags that switch a field off."""

NO_FLAG: Final[Mapping[str, str]] = {
    "base_config": "it says what a deploy file is laid over",
    "pipeline": "it says which pipeline a deploy file is for",
}
"""Fields of the root of a deploy file that speak about that file, with the reason."""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "layout": ("async_chunk", "default_sampling_params"),
    "parallel": ("omni_lb_policy",),
    "memory": (
        "dtype",
        "enforce_eager",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "quantization",
    ),
}
"""Groups that `--help` shows, with the fields that are in them besides the sizes of axes."""

ONE_STAGE_ONLY: Final = frozenset(
    {
        "enable_lora",
        "fully_sharded_loras",
        "lora_target_modules",
        "max_cpu_loras",
        "max_lora_rank",
        "max_loras",
    }
)
"""Fields of adapters: one set of them never fits several stages, so each stage has to be named."""

FIRST_CHOICE: Final[Mapping[str, ExecutionType]] = {
    "max_cpu_loras": ExecutionType.DIFFUSION,
}
"""Fields that go to stages of that kind alone, and need no stage named, where there is one."""
