"""`DiffusionParallelConfig`: the layout of a diffusion stage as one Python value.

Sugar over the same axes: what is given becomes fields of the stage, and is checked and counted by
the planner like any other. A value that was given is told apart from an equal default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, Self

from stagemesh.config.catalog import Catalog
from stagemesh.config.document import Source, read_mapping
from stagemesh.config.fields import stage_fields
from stagemesh.config.inputs import GivenField
from stagemesh.config.overrides import read_overrides
from stagemesh.config.place import Run
from stagemesh.config.scope import Scope
from stagemesh.config.stages import Stages
from stagemesh.errors import AxisTranslationError
from stagemesh.plan.alone import one_stage, plan_alone
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer
from stagemesh.spec.pipeline import ExecutionType

SOURCE: Final = "parallel_config"
"""How messages call the values of a `DiffusionParallelConfig`."""

_STAGE: Final = "stage"


@frozen
class DiffusionParallelConfig:
    """How the ranks of a diffusion stage share the work."""

    pipeline_parallel_size: int = 1
    """Parts of the layers, one after the other."""
    data_parallel_size: int | None = None
    """Groups of ranks that serve independent requests; one when it is `None`."""
    tensor_parallel_size: int = 1
    """Ranks that share each layer."""
    enable_expert_parallel: bool = False
    """Whether experts are spread over the ranks."""
    sequence_parallel_size: int | None = None
    """Ranks that share a sequence: the product of the degrees, and it can only repeat it."""
    ulysses_degree: int = 1
    """Ranks that share a sequence by heads."""
    ring_degree: int = 1
    """Ranks that pass keys and values of a sequence round."""
    allgather_degree: int = 1
    """Ranks that gather keys and values of a sequence, instead of a ring."""
    ulysses_mode: Literal["advanced_uaa", "strict"] = "advanced_uaa"
    """`advanced_uaa` takes any length and any head count; `strict` refuses remainders."""
    ulysses_a2a_permute: bool = False
    """Whether the all-to-all leaves the order of heads to the layer, in `strict` mode."""
    cfg_parallel_size: int = 1
    """Ranks that share the branches of guidance."""
    vae_patch_parallel_size: int = 1
    """Ranks that decode parts of a picture."""
    vae_parallel_mode: Literal["tile", "spatial_shard_height", "spatial_shard_width"] = "tile"
    """Which parts: tiles, or bands along one side."""
    text_encoder_tp_size: int = 1
    """Ranks that share the text encoder."""
    use_hsdp: bool = False
    """Whether weights lie in shards."""
    hsdp_shard_size: int = -1
    """Ranks that share one copy of the weights; `-1` is all ranks over `hsdp_replicate_size`."""
    hsdp_replicate_size: int = 1
    """Copies of the weights."""
    mask_sp_padding: bool = False
    """Whether padding of a cut sequence is hidden from attention."""
    given: frozenset[str] = field(init=False, repr=False, compare=False)
    """Names of the fields that were given."""

    def __new__(cls, **given: object) -> Self:
        """Remember what was given, which an equal default is not."""
        made = object.__new__(cls)
        object.__setattr__(made, "given", frozenset(given))
        return made

    def __post_init__(self) -> None:
        """Fill in the product of the degrees."""
        degrees = (self.ulysses_degree, self.ring_degree, self.allgather_degree)
        if self.sequence_parallel_size is None and all(type(each) is int for each in degrees):
            ulysses, ring, allgather = degrees
            object.__setattr__(self, "sequence_parallel_size", ulysses * max(ring, allgather))

    def as_given(self) -> tuple[GivenField, ...]:
        """Return what was given as fields for every diffusion stage."""
        kinds = frozenset({ExecutionType.DIFFUSION})
        source = f"Omni({SOURCE}=...)"
        return tuple(
            GivenField(name=name, value=value, source=source, kinds=kinds)
            for name, value in self.stage_fields().items()
        )

    @property
    def world_size(self) -> int:
        """Ranks of one replica; raises `AxisTranslationError` when there is no such layout."""
        catalog, run = Catalog.installed(), Run(partial=True)
        pipeline = one_stage(_STAGE, ExecutionType.DIFFUSION)
        source = Source(name=SOURCE, layer=Layer.GLOBAL)
        document = read_mapping({_STAGE: self.stage_fields()}, source, run.findings)
        assert document is not None
        fields = stage_fields(catalog)
        scope = Scope(stages=Stages(pipeline=pipeline), fields=fields, catalog=catalog)
        patches = read_overrides(document, scope, run)
        result = plan_alone(pipeline, patches, run, catalog=catalog, fields=fields)
        if result.plan is None:
            raise AxisTranslationError(result.diagnostics)
        return result.plan.stages[0].world_size

    def stage_fields(self) -> Mapping[str, object]:
        """Return what was given as fields of a stage; `None` takes back what lower layers say."""
        return {name: getattr(self, name) for name in sorted(self.given)}
