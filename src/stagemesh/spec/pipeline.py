"""A model as a fixed graph of stages. Declared by `models/<family>/pipeline.py`, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Final, Protocol, TypeAlias

from stagemesh.spec.duplex import DuplexModel
from stagemesh.spec.facts import StageFacts, WeightFiles
from stagemesh.spec.frozen import frozen
from stagemesh.spec.model import ModelCheck, no_model_findings

JsonObject: TypeAlias = Mapping[str, object]
"""A parsed JSON object."""


class CheckpointConfigs(Protocol):
    """The configuration files of a checkpoint, read on demand."""

    @property
    def root(self) -> JsonObject:
        """Return `config.json`, or `model_index.json` where that is what the folder has."""
        ...

    def component(self, folder: str) -> JsonObject:
        """Return the configuration file in a folder of the checkpoint; empty when it has none.

        Raises `DiagnosticError` when there is one that cannot be read.
        """
        ...

    def weights(self, folder: str) -> WeightFiles | None:
        """Return what the weight files in a folder amount to; `None` when it has none."""
        ...


FactsReader: TypeAlias = Callable[[CheckpointConfigs], Mapping[str, StageFacts]]
"""Reads a checkpoint's files into facts per stage name; what is missing stays `None`.

It raises `DiagnosticError` where the files contradict what the pipeline needs.
"""

ConfigPredicate: TypeAlias = Callable[[JsonObject], bool]
"""Whether a checkpoint's own configuration is one of this pipeline."""


OUTPUT_TYPES: Final = ("text", "image", "audio", "latent", "token_ids")
"""What an engine can put out."""

ANY_CLASS: Final = "*"
"""Stands in `diffusers_class_names` for every class that no other pipeline names."""


class ExecutionType(Enum):
    """How a stage computes; decides which engines and axes fit it."""

    LLM_AR = "llm_ar"
    """Token by token, autoregressively."""
    LLM_GENERATION = "llm_generation"
    """One pass over an input, such as a vocoder or an encoder."""
    DIFFUSION = "diffusion"
    """A denoising loop."""


@frozen
class NoOptions:
    """The options type of what takes none."""


@frozen
class StagePipelineConfig:
    """One stage of a pipeline."""

    stage_id: int
    """Stable number, from 0 without gaps."""
    model_stage: str
    """Name that strategy files, flags and messages use."""
    execution_type: ExecutionType = ExecutionType.LLM_AR
    """How it computes."""
    input_sources: tuple[int, ...] = ()
    """Stages whose output it takes; empty for the entry stage."""
    final_output: bool = False
    """Whether its output goes to the user."""
    final_output_type: str | None = None
    """Modality of that output, such as `text` or `audio`."""
    owns_tokenizer: bool = False
    """Whether it turns text into tokens and back."""
    engine_output_type: str | None = "text"
    """What its engine puts out: names of `OUTPUT_TYPES`, several joined by `+` or `,`; `None` is
    `text` too."""
    model_subdir: str = "."
    """Folder of its weights inside the checkpoint."""
    weight_folders: tuple[str, ...] = ()
    """Folders whose weight files make up its weights, as far as a checkpoint has them;
    `model_subdir` when it is empty."""
    model_arch: str | None = None
    """Architecture of its network; the pipeline's when it is not given."""
    hf_config_name: str | None = None
    """Section of the checkpoint's configuration that describes its network, keys joined by dots."""
    requires_multimodal_data: bool = False
    """Whether it takes pictures, clips or sounds from the request."""
    supports_native_mrv2_data_plane: bool = False
    """Whether model runner `v2` hands its payloads on without a copy."""
    mrv2_platforms: tuple[str, ...] = ()
    """Platforms, such as `npu`, on which model runner `v2` runs this stage and else no other."""
    is_guided: bool | None = None
    """Whether it takes classifier-free guidance, where the checkpoint does not say."""
    excludes: Mapping[str, str] = field(default_factory=dict)
    """Axes that it cannot have although they fit its kind, each with the reason."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Stage fields and request parameters that nothing in it can use although its kind or its
    engine takes them, each with the reason."""
    rank_axis: str | None = None
    """Axis that brings its ranks where no other does; on other stages it only reuses them."""
    loader: str | None = None
    """Reference of the network's loader; `None` where the engine knows how to load it."""
    options: type = NoOptions
    """Dataclass of what `additional_config` may hold for this stage."""
    edge_options: type = NoOptions
    """Dataclass of what `extra` of a connector may hold for the edges that leave this stage, beside
    the connector's own options."""
    params: type = NoOptions
    """Dataclass of the request parameters that the network adds to the engine's own."""
    sampling_constraints: Mapping[str, object] = field(default_factory=dict)
    """Parameters that a deploy file cannot override."""
    async_chunk_process_next_stage_input_func: str | None = None
    """Reference of a `BridgeFactory` that makes the next stage's input, chunk by chunk."""
    custom_process_input_func: str | None = None
    """Reference of a `BridgeFactory` for what comes in, whatever the stages before it hand over."""
    custom_process_next_stage_input_func: str | None = None
    """Reference of a `BridgeFactory` for handing over the whole payload at once."""
    produces_chunks: bool = False
    """Whether its engine can put out chunks, so that the next stage starts before it ends."""

    @property
    def output_types(self) -> tuple[str, ...]:
        """What its engine puts out, one name after the other."""
        given = self.engine_output_type
        return ("text",) if given is None else tuple(given.replace(",", "+").split("+"))


@frozen
class PipelineConfig:
    """A model's stages, how its checkpoints are recognised, and what they say."""

    model_type: str
    """Name of the pipeline, and the `model_type` of the checkpoints that it answers to."""
    summary: str
    """One line for listings."""
    stages: tuple[StagePipelineConfig, ...]
    """The stages, by ascending id."""
    default_deploy_config_name: str
    """Name of the deploy file that ships with the model, without `.yaml`."""
    model_arch: str | None = None
    """Architecture of the networks, for stages that name none."""
    hf_architectures: tuple[str, ...] = ()
    """Architectures in `config.json` that it answers to when the `model_type` is not its own."""
    hf_config_predicate: ConfigPredicate | None = None
    """Chooses between pipelines whose `model_type` or architectures are the same."""
    diffusers_class_names: tuple[str, ...] = ()
    """Names of `_class_name` in `model_index.json` that it answers to; it then reads that file."""
    variant_of: str | None = None
    """Pipeline of which it is another cut. With a predicate it answers to the same checkpoints as
    that one; without, it is chosen by `pipeline:` in a deploy file alone."""
    input_modalities: tuple[str, ...] = ("text",)
    """What a request may bring, for listings."""
    stage_cli_aliases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Stage fields that mean a field of one stage: name to stage name and field."""
    duplex: DuplexModel | None = None
    """What it can do in full-duplex sessions; `None` when it has none."""
    facts: FactsReader | None = None
    """Reader of the checkpoint's facts."""
    check: ModelCheck = no_model_findings
    """Its rules over the effective configuration."""
    planning_only: str | None = None
    """Why it can be planned but not run yet, or `None` when it runs."""
    plans: str | None = None
    """Reference of a function that returns the plans of its networks, `ModelPlan` and `VaePlan`;
    `None` where it has none."""
    checkpoint_recipe: str | None = None
    """Reference of a function that assembles a checkpoint named like the pipeline, or `None`."""

    def stage(self, name: str) -> StagePipelineConfig | None:
        """Return the stage called `name`, or `None`."""
        return next((stage for stage in self.stages if stage.model_stage == name), None)
