"""Whatever the fields of these topics say: a plan that can be saved, or diagnostics."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagemesh.config.kind_fields import Diffusion, EveryKind, Llm, Recovery
from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.spec.duplex import DuplexModel
from tests.examples import fewer
from tests.plan.rules.toys import AR, DIT, Toy, chain

MODEL: Final = replace(
    chain(AR, DIT),
    duplex=DuplexModel(
        plugin="nowhere:plugin", supports_session_resume=False, supports_concurrent_sessions=True
    ),
)
VALUES: Final = st.sampled_from(
    [
        None, True, False, -1, 0, 1, 2, 0.5, 10**30, "", "0", "0,1", "auto", "ray", "uni", "v2",
        "least_sessions", "peft", "distill", "x" * 200, [], [0], ["0-1"], ["1-0"], [None], {},
        {"default": "auto"}, {"default": 1}, {"per_role": {"self": {"backend": "X"}}},
        [{"0": 0, "1": 0}], [{"0": 0, "1": 0}, {"0": 1, "1": 1}], {"CUDA_MPS_PIPE_DIRECTORY": ""},
        {"CUDA_VISIBLE_DEVICES": "1"}, {"a": [{"b": 1}]},
    ]
)  # fmt: skip
"""What fields of these topics take, and much that none takes."""

ENTRY: Final = st.dictionaries(
    st.sampled_from(
        [
            "devices", "env", "num_replicas", "tensor_parallel_size", "ulysses_degree",
            "default_sampling_params", "async_chunk",
            *(item.name for kind in (EveryKind, Recovery, Llm, Diffusion) for item in fields(kind)),
        ]
    ),
    VALUES,
    max_size=4,
)  # fmt: skip
SECTION: Final = st.dictionaries(
    st.sampled_from([item.name for item in fields(DuplexSession)]), VALUES, max_size=4
)
ROOT: Final = st.dictionaries(
    st.sampled_from(
        ["session_mode", "cuda_mps", "active_stream_window", "weight_transfer_config",
         "distributed_executor_backend", "model_runner"]
    ),
    VALUES | st.just("duplex"),
    max_size=3,
)  # fmt: skip


def some(**values: list[object]) -> st.SearchStrategy[dict[str, object]]:
    """Some of these keys, each with one of its values."""
    return st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(each) for name, each in values.items()}
    )


FILE: Final = st.builds(
    lambda root, section, first, second: {
        **root,
        **({"duplex_session": section} if section else {}),
        "stages": [{"stage_id": 0, **first}, {"stage_id": 1, **second}],
    },
    ROOT,
    SECTION,
    ENTRY,
    ENTRY,
)
EVERY: Final[dict[str, list[object]]] = {
    "num_replicas": [1, 2],
    "model_runner": ["v1", "v2"],
    "distributed_executor_backend": ["mp", "ray"],
    "numa_bind": [True, False],
    "moe_backend": ["auto", "Deep-GEMM"],
    "enable_sleep_mode": [True, False],
    "env": [{"CUDA_MPS_PIPE_DIRECTORY": ""}, {"RANK": "1"}, {"COLOUR": "red"}],
    "default_sampling_params": [{"stop_token_ids": [1, 1]}, {}],
}
RIGHT: Final = st.builds(
    lambda root, section, first, second: {
        **root,
        **({"session_mode": "duplex", "duplex_session": section} if section else {}),
        "stages": [{"stage_id": 0, **first}, {"stage_id": 1, **second}],
    },
    some(
        cuda_mps=[True], active_stream_window=[0, 2], weight_transfer_config=[{}, {"packed": True}]
    ),
    some(
        max_sessions=[1, 5],
        replica_policy=["legacy", "least_sessions"],
        max_sessions_per_replica=[1, 3],
        replica_groups=[[{"0": 0, "1": 0}], [{"0": 0, "1": 0}, {"0": 1, "1": 1}]],
        idle_ttl_s=[None, 1],
    ),
    some(
        **EVERY,
        gpu_memory_utilization=[0.3, 0.6],
        attention_backend=["auto", "triton-attn"],
        enable_lora=[True],
        tensor_parallel_size=[1, 2],
        numa_bind_nodes=[[0]],
    ),
    some(
        **EVERY,
        lora_path=["/a", ["/a"]],
        lora_scale=[0.5],
        ulysses_degree=[1, 2],
        diffusion_attention_config=[{"default": "TORCH_SDPA"}, {"per_role": {"self": "auto"}}],
        diffusion_attention_backend=["torch_sdpa"],
    ),
)


@settings(
    fewer(2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    deploy=FILE | RIGHT,
    devices=st.sampled_from(["4xH100", "2xAscend910B", 4]),
    frontends=st.integers(1, 3),
)
def test_nothing_makes_a_rule_fail(
    toy: Toy, deploy: dict[str, Any], devices: str | int, frontends: int
) -> None:
    """Wrong values are told, right ones are in a plan that is taken back when it was saved."""
    toy = replace(toy, model=MODEL, devices=devices, frontends=frontends)
    result = toy.build(deploy)
    rules = [found.message for found in result.diagnostics if found.code.startswith("PL")]
    assert all(len(message) <= 120 for message in rules)
    if result.plan is None:
        assert any(found.is_error for found in result.diagnostics)
    else:
        toy.keeps(result.plan)
