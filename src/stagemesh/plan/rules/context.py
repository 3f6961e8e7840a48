"""What a rule is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import Settings, Sourced, StageSettings
from stagemesh.plan.devices import Devices
from stagemesh.plan.place import Placement
from stagemesh.plan.sessions import SessionPlan
from stagemesh.plan.setup import (
    Executor,
    KernelsPlan,
    MpsPlan,
    NumaPlan,
    RecoveryPlan,
    Runner,
    SharePlan,
)
from stagemesh.plan.stage import StageDraft
from stagemesh.plan.values import EdgePlan, WeightTransferPlan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin
from stagemesh.spec.pipeline import PipelineConfig


@frozen
class RuleContext:
    """The effective configuration, all layers merged, with what was decided before the rules."""

    pipeline: PipelineConfig
    """The model."""
    settings: Settings
    """The merged configuration."""
    drafts: tuple[StageDraft, ...]
    """Axes, engine and arguments of every stage, by ascending id."""
    placement: Placement
    """Where the stages lie; stages with mistakes have no place."""
    edges: tuple[EdgePlan, ...]
    """What carries payloads from stage to stage."""
    devices: Devices
    """The devices that may be used."""
    catalog: Catalog
    """What is installed."""
    async_chunk: bool
    """Whether stages hand over chunks."""

    def launch(self, name: str) -> Sourced[object] | None:
        """Return a launch option that was given."""
        return self.settings.launch.get(name)

    def wide(self, name: str) -> Sourced[object] | None:
        """Return a pipeline-wide field, if it has a value."""
        return _present(self.settings.fields.get(name))

    def given(self, draft: StageDraft, name: str) -> Sourced[object] | None:
        """Return a stage field, if it has a value."""
        return _present(self.said(draft).fields.get(name))

    def said(self, draft: StageDraft) -> StageSettings:
        """Return everything that was said about a stage."""
        return next(each for each in self.settings.stages if each.stage_id == draft.stage_id)

    def origin(self, draft: StageDraft, name: str) -> Origin | None:
        """Return the place where a stage field was written."""
        given = self.given(draft, name)
        return None if given is None else given.origin

    def each(self, name: str) -> Iterator[tuple[StageDraft, Sourced[object]]]:
        """Return the stages that a field has a value for, with that value."""
        for draft in self.drafts:
            given = self.given(draft, name)
            if given is not None:
                yield draft, given


def _present(given: Sourced[object] | None) -> Sourced[object] | None:
    return None if given is None or given.value is None else given


@frozen
class Ruling:
    """What one rule, or all of them together, found and decided; stages are named by their id."""

    diagnostics: tuple[Diagnostic, ...] = ()
    """What is wrong, or deserves a warning."""
    skipped: tuple[str, ...] = ()
    """Checks that could not be made."""
    session: SessionPlan | None = None
    """How the pipeline serves."""
    weight_transfer: WeightTransferPlan | None = None
    """How weights are replaced while it runs."""
    active_stream_window: int = 0
    """Streams of chunks that a stage serves at a time."""
    runners: Mapping[int, Runner] = field(default_factory=dict)
    """Generation of the model runner of every stage."""
    executors: Mapping[int, Executor] = field(default_factory=dict)
    """How the ranks of every stage are started."""
    numa: Mapping[int, NumaPlan] = field(default_factory=dict)
    """NUMA bindings of the stages that have some."""
    mps: Mapping[int, MpsPlan] = field(default_factory=dict)
    """CUDA MPS of every stage, where it was asked for."""
    shares: Mapping[int, SharePlan] = field(default_factory=dict)
    """Memory shares of the stages that have one."""
    kernels: Mapping[int, KernelsPlan] = field(default_factory=dict)
    """Kernels of every stage."""
    hosts: Mapping[int, int] = field(default_factory=dict)
    """The stage in whose processes each guest runs."""
    recoveries: Mapping[int, RecoveryPlan] = field(default_factory=dict)
    """What happens when a replica of each stage dies or hangs."""


Rule: TypeAlias = Callable[[RuleContext], Ruling]
"""One topic's checks and decisions."""
