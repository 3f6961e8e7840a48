"""Stage fields that belong to a kind of stage, whichever engine runs it.

A field here is known for every stage of its kinds and an error for the others. An engine that acts
on one lists it in its own `options`; where the engine of a stage does not, the plan is valid and
says that it cannot be run. `None` means that nothing is overridden. A field on which nothing acts
unless another one is given names that one (`acts_with`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Final, Literal, TypeAlias

from stagemesh.config.check import Forbidden
from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.switch import Switch, acts_with

PIPELINE_WIDE: Final[Mapping[str, bool]] = {"pipeline_wide": True}
"""Metadata of a field that the root of a deploy file may give for every stage that has it."""

Count: TypeAlias = Annotated[int, Range(minimum=1)]
"""A number of things that must exist."""

Amount: TypeAlias = Annotated[int, Range(minimum=0)]
"""A number of things that may be absent."""

Text: TypeAlias = Annotated[
    str,
    Forbidden(
        regex=r"\s*",
        reason="must not be empty",
        remedy="leave it out, or write `null` to take back what lower layers say",
        code="CF013",
    ),
]
"""A name, a path or another word; an empty one is more often a variable that nobody has set."""

Object: TypeAlias = Mapping[str, object]
"""An object that is handed on as it is."""

_SENT: Final = Switch(name="enable_lora", on=(True,))
_LORA: Final = acts_with(_SENT)
_NUMA: Final = acts_with(Switch(name="numa_bind", on=(True,)))
_TOKENIZER: Final = acts_with(Switch(name="skip_tokenizer_init", off=(True,), by_default=True))
_COMPILED: Final = acts_with(Switch(name="enforce_eager", off=(True,), by_default=True), idle=())
_KV_CACHE: Final = acts_with(Switch(name="diffusion_kv_cache_dtype", off=("auto",)))
_RESTART: Final = acts_with(Switch(name="restart", off=("never",), by_default=True))
_WIDE_RESTART: Final = {**PIPELINE_WIDE, **_RESTART}
_ADAPTERS: Final = Switch(name="lora_path")
_OFFLOADED: Final = (
    Switch(name="enable_distributed_layerwise_offload", on=(True,)),
    Switch(name="diffusion_offload_config"),
)
_QUANTIZED: Final = (
    Switch(name="quantization", off=("none",)),
    Switch(name="diffusion_quantization_config"),
)
_OWN_CLASS: Final = (
    Switch(name="diffusion_load_format", on=("custom_pipeline",)),
    Switch(name="model_class_name"),
)

ModelRunner: TypeAlias = Literal["v1", "v2"]
"""Generation of the model runner."""

Dtype: TypeAlias = Literal["auto", "bfloat16", "float16", "float32"]
"""A type that networks compute in; `auto` takes the checkpoint's."""


@frozen
class EveryKind:
    """Fields of every stage."""

    max_num_seqs: Count | None = None
    """Most requests that are computed together."""
    dtype: Dtype | None = field(default=None, metadata=PIPELINE_WIDE)
    """Type of weights and activations, such as `bfloat16`."""
    quantization: Text | None = field(default=None, metadata=PIPELINE_WIDE)
    """Quantization method of the weights."""
    trust_remote_code: bool | None = field(default=None, metadata=PIPELINE_WIDE)
    """Whether Python code that comes with the checkpoint may run."""
    distributed_executor_backend: Literal["uni", "mp", "ray", "external_launcher"] | None = field(
        default=None, metadata=PIPELINE_WIDE
    )
    """How further ranks are started: in the process (`uni`), as processes (`mp`), or by Ray."""
    model_runner: ModelRunner | None = field(default=None, metadata=PIPELINE_WIDE)
    """Generation of the model runner."""
    enforce_eager: bool | None = None
    """Whether captured graphs are switched off."""
    load_format: Text | None = None
    """Form of the weight files, such as `safetensors` or `dummy`."""
    moe_backend: Text | None = None
    """Kernels of mixture-of-experts layers; `auto` lets the engine choose."""
    linear_backend: Text | None = None
    """Kernels of linear layers; `auto` lets the engine choose."""
    max_cpu_loras: Count | None = field(
        default=None, metadata=acts_with(_SENT, where="on stages by tokens")
    )
    """Most LoRA adapters that are kept in the memory of the host."""
    enable_sleep_mode: bool | None = None
    """Whether the stage can give its device memory back while it is idle."""
    profiler_config: Object | None = None
    """What is profiled, and how."""
    numa_bind: bool | None = None
    """Whether the processes of the stage are bound to NUMA nodes."""
    numa_bind_nodes: tuple[Amount, ...] | None = field(default=None, metadata=_NUMA)
    """NUMA node of each device of the stage."""
    numa_bind_cpus: tuple[str, ...] | None = field(default=None, metadata=_NUMA)
    """CPU list of each device of the stage, such as `2-3`."""


@frozen
class Recovery:
    """Fields of every stage that say what happens when a replica of it dies or hangs."""

    restart: Literal["never", "on_failure"] | None = field(default=None, metadata=PIPELINE_WIDE)
    """Whether a replica that died is started again; `on_failure` when left out."""
    max_restarts: Annotated[int, Range(minimum=1, maximum=1000)] | None = field(
        default=None, metadata=_WIDE_RESTART
    )
    """Most restarts of one replica within `restart_window`, after which it stays down; `3`."""
    restart_window: Annotated[int, Range(minimum=1, maximum=86_400)] | None = field(
        default=None, metadata=_WIDE_RESTART
    )
    """Seconds over which restarts are counted; `600` when left out."""
    restart_delay: Annotated[float, Range(minimum=0, maximum=3600)] | None = field(
        default=None, metadata=_WIDE_RESTART
    )
    """Seconds before the first restart, twice as many before each further one; `0.5`."""
    step_timeout: Annotated[float, Range(minimum=0.1, maximum=86_400)] | None = field(
        default=None, metadata=PIPELINE_WIDE
    )
    """Seconds until a step counts as hung; the replica is ended after twice as long; `300`."""


@frozen
class Sharing:
    """Fields of every stage that say with whom it shares a process."""

    colocate_with: Amount | Text | None = field(default=None, metadata=PIPELINE_WIDE)
    """Stage, by name or number, in whose processes this one runs; in its own if it names itself."""


@frozen
class Llm:
    """Fields of stages that run a language model or another network by tokens."""

    gpu_memory_utilization: Annotated[float, Range(minimum=0.01, maximum=1.0)] | None = None
    """Share of a device's memory that the stage may use; its cache takes what the weights leave."""
    kv_cache_memory_bytes: Count | None = None
    """Bytes of the key-value cache of one rank; replaces the automatic size."""
    max_num_batched_tokens: Count | None = None
    """Most tokens that one step computes."""
    max_model_len: Annotated[int, Range(minimum=1, also=-1)] | None = None
    """Longest sequence in tokens; `-1` takes as much as the cache holds."""
    async_scheduling: bool | None = None
    """Whether the next step is scheduled while the current one runs."""
    enable_prefix_caching: bool | None = field(default=None, metadata=PIPELINE_WIDE)
    """Whether equal beginnings of prompts share their cache."""
    enable_chunked_prefill: bool | None = field(default=None, metadata=PIPELINE_WIDE)
    """Whether long prompts are computed in parts."""
    custom_voice_dir: Text | None = field(default=None, metadata=PIPELINE_WIDE)
    """Folder of voice profiles of a speech model."""
    attention_backend: Text | None = None
    """Kernels of attention, such as `TRITON_ATTN`."""
    kv_cache_dtype: Text | None = None
    """Type of the key-value cache."""
    disable_hybrid_kv_cache_manager: bool | None = None
    """Whether layers of different kinds share one form of cache."""
    mamba_ssm_cache_dtype: Text | None = None
    """Type of the state of state-space layers."""
    compilation_config: Object | None = None
    """Settings of compilation and captured graphs."""
    enable_flashinfer_autotune: bool | None = None
    """Whether kernels are tuned at the start."""
    config_format: Text | None = None
    """Form of the checkpoint's configuration."""
    tokenizer: Text | None = field(default=None, metadata=_TOKENIZER)
    """Another tokenizer than the checkpoint's."""
    tokenizer_mode: Text | None = field(default=None, metadata=_TOKENIZER)
    """How the tokenizer is loaded."""
    skip_tokenizer_init: bool | None = None
    """Whether no tokenizer is loaded."""
    hf_overrides: Object | None = None
    """Values of the checkpoint's configuration to replace."""
    limit_mm_per_prompt: Object | None = None
    """Most pictures, clips and sounds of one request, by modality."""
    mm_processor_cache_gb: Annotated[float, Range(minimum=0)] | None = None
    """Gigabytes that keep processed pictures, clips and sounds."""
    skip_mm_profiling: bool | None = None
    """Whether memory of pictures, clips and sounds is not measured at the start."""
    kv_transfer_config: Object | None = None
    """How the key-value cache is handed to another stage."""
    seed: Amount | None = None
    """Seed of everything random in the stage."""
    enable_lora: bool | None = None
    """Whether requests may bring LoRA adapters."""
    max_lora_rank: Count | None = field(default=None, metadata=_LORA)
    """Greatest rank of an adapter."""
    max_loras: Count | None = field(default=None, metadata=_LORA)
    """Most adapters in one batch."""
    lora_target_modules: tuple[Text, ...] | None = field(default=None, metadata=_LORA)
    """Names of the layers that adapters may change."""
    fully_sharded_loras: bool | None = field(default=None, metadata=_LORA)
    """Whether adapters are cut over the ranks as the layers are."""
    subtalker_sampling_params: Object | None = None
    """Parameters of the small model that predicts the further codes of a frame."""
    silence_ban_frames: Amount | None = None
    """Frames at the beginning in which silence cannot be sampled."""
    tts_max_instructions_length: Count | None = None
    """Most characters of a style instruction."""


@frozen
class Diffusion:
    """Fields of stages that denoise."""

    model_class_name: Text | None = None
    """Class of the pipeline, when the checkpoint's own should not be taken."""
    diffusion_load_format: Literal["default", "custom_pipeline", "dummy", "diffusers"] | None = None
    """Where the networks come from."""
    diffusers_load_kwargs: Object | None = None
    """Further arguments of loading."""
    diffusers_call_kwargs: Object | None = None
    """Further arguments of every call."""
    custom_pipeline_args: Object | None = field(
        default=None, metadata=acts_with(_OWN_CLASS, by_itself="pipeline_class")
    )
    """Arguments of a custom pipeline."""
    diffusion_quantization_config: Object | None = None
    """How the weights of the denoiser are quantized."""
    force_cutlass_fp8: bool | None = field(default=None, metadata=acts_with(_QUANTIZED))
    """Whether eight-bit products take the CUTLASS kernels."""
    diffusion_attention_config: Object | None = None
    """Attention kernels: `default`, and `per_role` for some layers."""
    diffusion_attention_backend: Text | None = None
    """Deprecated spelling of `diffusion_attention_config: {default: ...}`."""
    fastvideo_vsa_topk: Count | None = field(
        default=None,
        metadata=acts_with(
            Switch(
                name="diffusion_attention_config",
                on=("FASTVIDEO_VSA",),
                example="{default: FASTVIDEO_VSA}",
            )
        ),
    )
    """Blocks that sparse video attention keeps."""
    fa_deterministic: bool | None = None
    """Whether attention gives the same bits every time."""
    mask_sp_padding: bool | None = None
    """Whether padding of a cut sequence is hidden from attention."""
    diffusion_compile_granularity: Literal["regional", "full"] | None = field(
        default=None, metadata=_COMPILED
    )
    """What is compiled: the repeated blocks, or the whole network."""
    diffusion_compile_dynamic: bool | None = field(default=None, metadata=_COMPILED)
    """Whether compiled code takes any shape."""
    lora_path: Text | tuple[Text, ...] | None = None
    """LoRA adapters to load."""
    lora_backend: Literal["peft", "distill"] | None = field(
        default=None, metadata=acts_with(_ADAPTERS, idle=("peft",))
    )
    """How adapters are applied; `peft` takes one path."""
    lora_scale: float | None = field(
        default=None,
        metadata=acts_with(
            _ADAPTERS, Switch(name="lora_backend", off=("distill",), by_default=True)
        ),
    )
    """Strength of the adapters; any number, as below 0 their effect is taken away."""
    cache_backend: Text | None = None
    """Method that reuses results of earlier steps."""
    cache_config: Object | None = field(
        default=None, metadata=acts_with(Switch(name="cache_backend", off=("none",)))
    )
    """Settings of that method."""
    enable_cache_dit_summary: bool | None = field(
        default=None, metadata=acts_with(Switch(name="cache_backend", on=("cache_dit",)))
    )
    """Whether that method reports what it saved."""
    step_execution: bool | None = None
    """Whether requests join and leave between denoising steps."""
    request_batch_max_wait_ms: Annotated[float, Range(minimum=0)] | None = None
    """Longest wait for companions of a batch."""
    diffusion_streaming_output: bool | None = None
    """Whether parts of the result are sent before all is done."""
    video_output_transport: Text | None = None
    """How frames leave the stage."""
    max_generated_image_size: Count | None = None
    """Most pixels of a picture."""
    vae_use_slicing: bool | None = None
    """Whether the VAE decodes the pictures of a batch one by one."""
    vae_use_tiling: bool | None = None
    """Whether the VAE decodes a picture in tiles."""
    vae_fast_path: Literal["off", "lossless", "channels_last"] | None = None
    """Layout of the VAE's tensors."""
    boundary_ratio: Annotated[float, Range(minimum=0, maximum=1)] | None = None
    """Share of the time steps below which a second denoiser takes over, from 0 to 1."""
    flow_shift: Annotated[float, Range(above=0)] | None = None
    """Shift of the noise schedule, a factor: from 0 downwards no noise would be left to remove."""
    diffusion_kv_cache_dtype: Text | None = None
    """Type of cached keys and values."""
    diffusion_kv_cache_skip_steps: tuple[Amount, ...] | None = field(
        default=None, metadata=_KV_CACHE
    )
    """Steps that keep the full type."""
    diffusion_kv_cache_skip_layers: tuple[Amount, ...] | None = field(
        default=None, metadata=_KV_CACHE
    )
    """Layers that keep the full type."""
    auxiliary_text_encoder: Text | None = None
    """A further text encoder."""
    enable_multithread_weight_load: bool | None = None
    """Whether several threads read the weights."""
    num_weight_load_threads: Count | None = field(
        default=None,
        metadata=acts_with(Switch(name="enable_multithread_weight_load", by_default=True)),
    )
    """How many do."""
    enable_broadcast_weight_load: bool | None = None
    """Whether one rank reads the weights for all."""
    diffusion_offload_config: Object | None = None
    """What is kept in the memory of the host."""
    enable_cpu_offload: bool | None = None
    """Whether components wait in the memory of the host until they are used."""
    enable_layerwise_offload: bool | None = None
    """Whether layers do."""
    enable_distributed_layerwise_offload: bool | None = None
    """Whether ranks share the layers that wait."""
    dlo_use_allgather: bool | None = field(default=None, metadata=acts_with(_OFFLOADED, idle=()))
    """Whether shared layers are gathered from all ranks at once."""
    dlo_resident_layers: Amount | None = field(
        default=None, metadata=acts_with(_OFFLOADED, idle=(0,))
    )
    """Layers that always stay on the device."""
    dlo_host_registration_limit_gib: Annotated[float, Range(minimum=0)] | None = field(
        default=None, metadata=acts_with(_OFFLOADED)
    )
    """Most memory of the host that is pinned for them."""
    host_weight_runtime_mode: Literal["disabled", "preferred", "required"] | None = None
    """Whether replicas of a host share one copy of the weights."""
    host_weight_runtime_root: Text | None = field(
        default=None,
        metadata=acts_with(Switch(name="host_weight_runtime_mode", off=("disabled",))),
    )
    """Folder of that copy."""
    enable_diffusion_pipeline_profiler: bool | None = None
    """Whether the parts of a call are timed."""


_LLM: Final = frozenset({ExecutionType.LLM_AR, ExecutionType.LLM_GENERATION})

KIND_FIELDS: Final[Mapping[type, frozenset[ExecutionType]]] = {
    EveryKind: frozenset(ExecutionType),
    Recovery: frozenset(ExecutionType),
    Sharing: frozenset(ExecutionType),
    Llm: _LLM,
    Diffusion: frozenset({ExecutionType.DIFFUSION}),
}
"""The stage kinds of each class of fields."""

_LOADED_ADAPTERS: Final = "write `lora_path`, with `lora_scale` and `lora_backend`"
_SENT_ADAPTERS: Final = "write `enable_lora: true`; requests bring the adapters"

INSTEAD: Final[Mapping[str, str]] = {
    "enable_lora": _LOADED_ADAPTERS,
    "max_lora_rank": _LOADED_ADAPTERS,
    "max_loras": _LOADED_ADAPTERS,
    "lora_target_modules": _LOADED_ADAPTERS,
    "fully_sharded_loras": _LOADED_ADAPTERS,
    "lora_path": _SENT_ADAPTERS,
    "lora_scale": _SENT_ADAPTERS,
    "lora_backend": _SENT_ADAPTERS,
    "attention_backend": "write `diffusion_attention_config: {default: ...}`",
    "diffusion_attention_config": "write `attention_backend`",
    "diffusion_attention_backend": "write `attention_backend`",
}
"""What stages of the other kinds have in place of a field."""
