"""Every field that a deploy file, a strategy file or a start may have, given in turn.

The tables are by name: a field that is added and has no value here fails the tests that read them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.check import hints
from stagemesh.config.fields import stage_fields
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.launch import LaunchOptions
from stagemesh.config.schema import (
    ConnectorEntry,
    DeployFile,
    EdgeEntry,
    StageEntry,
    StrategyEntry,
)
from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.plan.export.vllm_omni_stages import SHARED
from stagemesh.spec.axis import ENABLED, SIZE
from stagemesh.spec.connector import Reach
from stagemesh.spec.duplex import DuplexModel
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from tests.plan.export.feeding_back import another
from tests.plan.making import pipeline, stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """What the model can be told about the edges that leave its first stage."""

    frames: int = 1
    """Any number."""
    window: int | None = None
    """Any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """`additional_config` of the first stage."""

    pitch: float = 1.0
    """Any number."""


OUT: Final[Mapping[str, object]] = {"final_output": True, "final_output_type": "image"}
KINDS: Final = {
    ExecutionType.LLM_AR: 0,
    ExecutionType.LLM_GENERATION: 1,
    ExecutionType.DIFFUSION: 2,
}
NAMES: Final = ("thinker", "vocoder", "dit")
MODEL: Final[PipelineConfig] = dataclasses.replace(
    pipeline(
        stage(0, "thinker", edge_options=Frames, options=Voice, produces_chunks=True),
        stage(1, "vocoder", execution_type=ExecutionType.LLM_GENERATION),
        stage(
            2,
            "dit",
            execution_type=ExecutionType.DIFFUSION,
            is_guided=True,
            **OUT,
        ),
    ),
    duplex=DuplexModel(plugin="m:duplex", supports_concurrent_sessions=True),
)
INSTALLED: Final = Catalog.installed()


def catalog(model: PipelineConfig) -> Catalog:
    """What is installed, with one model."""
    return dataclasses.replace(INSTALLED, models=(Model(pipeline=model, package="nowhere"),))


CATALOG: Final = catalog(MODEL)
FIELDS: Final = stage_fields(CATALOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What one case says."""

    path: str
    """Path under which the value is told where it cannot be expressed."""
    deploy: Mapping[str, Any] = field(default_factory=dict)
    """Its deploy file."""
    strategy: Mapping[str, Any] = field(default_factory=dict)
    """Axes by stage."""
    start: Mapping[str, object] = field(default_factory=dict)
    """Its flags."""
    model: PipelineConfig = MODEL
    """Its pipeline."""


# --- the root -------------------------------------------------------------------------------------

_DUPLEX: Final = {"session_mode": "duplex"}
_SESSIONS: Final = {"replica_policy": "least_sessions", "max_sessions_per_replica": 2}
SHM: Final = "SharedMemoryConnector"
ENDS: Final = {"from": 0, "to": 1}
ROOT: Final[Mapping[str, Mapping[str, object]]] = {
    "base_config": {},
    "pipeline": {},
    "async_chunk": {"async_chunk": False},
    "session_mode": _DUPLEX,
    "active_stream_window": {"active_stream_window": 3},
    "duplex_session": _DUPLEX | {"duplex_session": {"max_sessions": 3}},
    "connectors": {},
    "edges": {},
    "stages": {},
    "platforms": {"platforms": {"cuda": {"stages": [{"stage_id": 0, "max_num_seqs": 3}]}}},
    "weight_transfer_config": {"weight_transfer_config": {"backend": "nccl", "packed": True}},
    "cuda_mps": {"cuda_mps": True},
}
"""What is said at the root; what is empty is said by the cases below it."""
SESSION: Final[Mapping[str, Mapping[str, object]]] = {
    "replica_policy": _SESSIONS,
    "max_sessions_per_replica": _SESSIONS,
    "replica_groups": _SESSIONS | {"replica_groups": [{0: 0, 1: 0, 2: 0}]},
    "idle_ttl_s": {"idle_ttl_s": None},
}
"""Fields of sessions that need others."""


def of_root() -> Iterator[Given]:
    """Fields of the root, of sessions, of connectors and of edges."""
    for name in hints(DeployFile):
        if ROOT[name]:
            yield Given(path=name, deploy=ROOT[name])
    usual = DuplexSession()
    for name, annotation in hints(DuplexSession).items():
        value = {name: another(annotation, getattr(usual, name))}
        session = {"max_sessions": 2} | dict(SESSION.get(name, value))
        path = f"duplex_session.{name}"
        yield Given(path=path, deploy=_DUPLEX | {"duplex_session": session})
    for name in (*hints(ConnectorEntry), *hints(EdgeEntry)):
        yield EDGES[name]
    for name, spec in CATALOG.connectors.items():
        for option in hints(spec.options):
            extra = {option: _option(spec.options, option)}
            yield _carried(option, {"name": name, "extra": extra}, spec.reach)
        yield _carried("connector", {"name": name, "extra": {"frames": 3}}, spec.reach)
    yield _carried("frames", {"name": SHM, "extra": {"frames": 7}})


def _carried(option: str, connector: Mapping[str, object], reach: Reach = Reach.NETWORK) -> Given:
    deploy = {"connectors": {"one": connector}, "edges": [{**ENDS, "connector": "one"}]}
    if reach is Reach.PROCESS:
        deploy["stages"] = [{"stage_id": 1, "colocate_with": 0}]
    return Given(path=f"edges.0-1.{option}", deploy=deploy)


STORE: Final = {"name": "MooncakeStoreConnector"}
EDGES: Final[Mapping[str, Given]] = {
    "name": _carried("connector", STORE),
    "extra": _carried("segment", {**STORE, "extra": {"segment": 2**25}}),
    "connector": _carried("connector", STORE),
    "window_size": Given(
        path="edges.0-1.window_size", deploy={"edges": [{**ENDS, "window_size": 3}]}
    ),
    "max_inflight": Given(
        path="edges.0-1.max_inflight", deploy={"edges": [{**ENDS, "max_inflight": 3}]}
    ),
}
"""Every key of a connector and of an edge."""


# --- stages ---------------------------------------------------------------------------------------

OWN: Final[Mapping[str, Mapping[str, object]]] = {
    "engine": {"engine": "fake"},
    "async_chunk": {},
    "devices": {"devices": "1"},
    "env": {"env": {"COLOUR": "red"}},
    "default_sampling_params": {"default_sampling_params": {"temperature": 0.5}},
    "additional_config": {"additional_config": {"pitch": 2.0}},
    "input_connectors": {},
    "output_connectors": {},
    "engine_extras": {"engine_extras": {"max_num_seqs": 3}},
}
"""The planner's own fields of a stage; what is empty is said of edges, or of all stages."""
_LORA: Final = {"enable_lora": True}
_NUMA: Final = {"numa_bind": True}
SPECIAL: Final[Mapping[str, Mapping[str, object]]] = {
    "dtype": {"dtype": "float32"},
    "moe_backend": {"moe_backend": "triton"},
    "linear_backend": {"linear_backend": "torch"},
    "attention_backend": {"attention_backend": "TRITON_ATTN"},
    "diffusion_attention_config": {"diffusion_attention_config": {"default": "TORCH_SDPA"}},
    "diffusion_attention_backend": {},
    "max_model_len": {"max_model_len": 7},
    "max_cpu_loras": {**_LORA, "max_cpu_loras": 2},
    "max_lora_rank": {**_LORA, "max_lora_rank": 2},
    "max_loras": {**_LORA, "max_loras": 2},
    "lora_target_modules": {**_LORA, "lora_target_modules": ["q"]},
    "fully_sharded_loras": {**_LORA, "fully_sharded_loras": True},
    "lora_scale": {"lora_path": "a", "lora_scale": 0.5},
    "lora_backend": {"lora_backend": "peft"},
    "skip_tokenizer_init": {"skip_tokenizer_init": False},
    "cache_backend": {"cache_backend": "cache_dit"},
    "mask_sp_padding": {"ulysses_degree": 2, "mask_sp_padding": True},
    "host_weight_runtime_mode": {"host_weight_runtime_mode": "preferred"},
    "fastvideo_vsa_topk": {
        "fastvideo_vsa_topk": 3,
        "diffusion_attention_config": {"default": "FASTVIDEO_VSA"},
    },
    "numa_bind_nodes": {**_NUMA, "numa_bind_nodes": [0]},
    "numa_bind_cpus": {**_NUMA, "numa_bind_nodes": [0], "numa_bind_cpus": ["1"]},
    "enable_expert_parallel": {"tensor_parallel_size": 2, "enable_expert_parallel": True},
    "ulysses_a2a_permute": {
        "ulysses_degree": 2,
        "ulysses_mode": "strict",
        "ulysses_a2a_permute": True,
    },
    "use_hsdp": {"use_hsdp": True, "hsdp_shard_size": 2},
    "hsdp_shard_size": {"use_hsdp": True, "hsdp_shard_size": 2},
    "hsdp_replicate_size": {"use_hsdp": True, "hsdp_shard_size": 2, "hsdp_replicate_size": 2},
    "sequence_parallel_size": {"ulysses_degree": 2, "sequence_parallel_size": 2},
    "text_encoder_tp_size": {"tensor_parallel_size": 2, "text_encoder_tp_size": 2},
    "vae_patch_parallel_size": {"ulysses_degree": 2, "vae_patch_parallel_size": 2},
}
"""Fields with rules of their own; what is empty is another spelling of the same."""


def of_stages() -> Iterator[Given]:
    """Every stage field, on a stage of the first kind that has it; those of a kind together."""
    for name in hints(StageEntry):
        if name != "stage_id" and OWN[name]:
            yield _entry(name, 0, OWN[name])
    off = [{"stage_id": number, "async_chunk": False} for number in KINDS.values()]
    yield Given(path="thinker.async_chunk", deploy={"stages": off})
    yield Given(path="thinker.kv_transfer_config", deploy=TRANSFER)
    for declared, kinds in KIND_FIELDS.items():
        number = min(KINDS[kind] for kind in kinds)
        entries = {
            name: SPECIAL.get(name, {name: another(annotation, None)})
            for name, annotation in hints(declared).items()
        }
        if declared not in SHARED:
            yield from (_entry(name, number, entry) for name, entry in entries.items())
        else:
            entries.pop("kv_transfer_config", None)
            together = {name: value for each in entries.values() for name, value in each.items()}
            yield _entry(declared.__name__, number, together)
    for name, each in FIELDS.items():
        if each.axis is not None and each.sets is not None:
            number = next(KINDS[kind] for kind in KINDS if kind in each.fits)
            path = f"{each.axis.name}.{each.sets.member}".replace(ENABLED, SIZE)
            value = {name: another(each.annotations[0], None)}
            yield _entry(path, number, SPECIAL.get(name, value))
    for engine in CATALOG.engines.values():
        number = min(KINDS[kind] for kind in engine.runs)
        for name, annotation in hints(engine.options).items():
            value = {name: another(annotation, getattr(engine.options(), name))}
            path = "engine" if name in BY_KIND and not engine.default_for else name
            yield _entry(path, number, {"engine": engine.name, **SPECIAL.get(name, value)})


BY_KIND: Final = frozenset(name for declared in KIND_FIELDS for name in hints(declared))
TRANSFER: Final = {
    "async_chunk": False,
    "stages": [{"stage_id": 0, "kv_transfer_config": {"some": 1}}],
}


def _entry(path: str, number: int, entry: Mapping[str, object]) -> Given:
    deploy = {"stages": [{"stage_id": number, **entry}]}
    return Given(path=f"{NAMES[number]}.{path}", deploy=deploy)


# --- axes and the start ---------------------------------------------------------------------------


def of_axes() -> Iterator[Given]:
    """Every member of an entry of a strategy, for every axis."""
    for axis in CATALOG.axes.values():
        number = next(KINDS[kind] for kind in KINDS if kind in axis.fits)
        members = {
            SIZE: 2,
            **{option: _option(axis.options, option) for option in hints(axis.options)},
        }
        for member, value in members.items():
            key = f"{axis.name}.{member}"
            entry = {"axis": axis.name, "size": 2, **AXES.get(key, {member: value})}
            yield Given(
                path=f"{NAMES[number]}.{key}",
                strategy={NAMES[number]: [entry, *BESIDE.get(axis.name, [])]},
            )
        for policy in axis.policies:
            entry = {"axis": axis.name, "size": 2, "routing": policy.value}
            path = f"{NAMES[number]}.{axis.name}.routing"
            yield Given(path=path, strategy={NAMES[number]: [entry]})


def of_entries() -> Iterator[Given]:
    """Every key that entries of all axes have alike."""
    for member in hints(StrategyEntry):
        for value in ENTRY[member]:
            entry = {"axis": "tp", "size": 2, member: value}
            yield Given(path=f"thinker.tp.{member}", strategy={"thinker": [entry]})


def _option(kind: type, name: str) -> object:
    return another(hints(kind)[name], getattr(kind(), name))


_SPEC: Final = {"target": "*", "category": "linear"}
ENTRY: Final[Mapping[str, list[object]]] = {
    "axis": [],
    "size": [],
    "routing": [],
    "l1_owner": [],
    "name": ["mine"],
    "layer_hook_specs": [[{"hook_id": "h", **_SPEC}]],
    "kernel_specs": [[{"kernel_id": "k", **_SPEC}]],
}
"""Keys of an entry; those without a value have cases of their own, or change nothing."""
_HASH: Final = {"routing": "hash"}
_SHARDS: Final = {"size": 4, "shard": 2, "replicate": 2}
AXES: Final[Mapping[str, Mapping[str, object]]] = {
    "dp.key": _HASH | {"key": "session"},
    "dp.load_bound": _HASH | {"load_bound": 2.0},
    "dp.local": {"local": 2},
    "stage_replica.key": _HASH | {"key": "session"},
    "stage_replica.load_bound": _HASH | {"load_bound": 2.0},
    "hsdp.shard": _SHARDS,
    "hsdp.replicate": _SHARDS,
    "sp_ulysses.a2a_permute": {"mode": "strict", "a2a_permute": True},
    "sp_ulysses.sequence_parallel_size": {"sequence_parallel_size": 2},
    "tp.text_encoder": {},
}
"""Members that need others; what is empty fits other stages alone, and has a field there."""
BESIDE: Final[Mapping[str, list[Mapping[str, object]]]] = {
    "ep": [{"axis": "tp", "size": 2}],
    "vae_pp": [{"axis": "sp_ulysses", "size": 2}],
}
"""Axes that need others."""


def of_start() -> Iterator[Given]:
    """Every launch option."""
    for name in hints(LaunchOptions):
        yield Given(path=f"launch.{name}", start=START[name], model=MODELS.get(name, MODEL))


MASTER: Final = {"stage_id": 0, "omni_master_address": "h", "omni_master_port": 7}
_TLS: Final = {"omni_tls_cert": "/c", "omni_tls_key": "/k", "omni_tls_ca": "/a"}
START: Final[Mapping[str, Mapping[str, object]]] = {
    "stage_id": MASTER,
    "headless": {**MASTER, "headless": True},
    "omni_master_address": MASTER,
    "omni_master_port": MASTER,
    "omni_replica_address": {**MASTER, "headless": True, "omni_replica_address": "r"},
    "omni_dp_size_local": {**MASTER, "omni_dp_size_local": 2},
    "api_server_count": {"api_server_count": 2},
    "worker_backend": {"worker_backend": "ray"},
    "ray_address": {"worker_backend": "ray", "ray_address": "r:1"},
    "omni_heartbeat_timeout": {**MASTER, "omni_heartbeat_timeout": 7},
    "stage_init_timeout": {"stage_init_timeout": 7},
    "init_timeout": {"init_timeout": 7},
    "shutdown_timeout": {"shutdown_timeout": 7},
    "omni_token_file": {**MASTER, "omni_token_file": "/t"},
    "insecure_no_token": {**MASTER, "insecure_no_token": True},
    "omni_tls_cert": {**MASTER, **_TLS},
    "omni_tls_key": {**MASTER, **_TLS},
    "omni_tls_ca": {**MASTER, **_TLS},
}

ALONE: Final = dataclasses.replace(MODEL, stages=(stage(0, "thinker", **OUT),))
MODELS: Final = {"api_server_count": ALONE}
"""Pipelines for options that others refuse: a diffusion stage has one frontend."""

CASES: Final = [*of_root(), *of_stages(), *of_axes(), *of_entries(), *of_start()]
