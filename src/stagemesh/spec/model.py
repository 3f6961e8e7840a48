"""What the rules of a model see of a planned configuration, and what they say about it.

A rule of one model (two options that exclude each other, a stage that only runs on one device)
belongs to the model's own declaration: `PipelineConfig.check`. The planner calls it once, with the
effective values of every layer, and adds the places where they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from stagemesh.spec.frozen import frozen


@frozen
class ModelFinding:
    """What a model has against its configuration; the planner adds the place."""

    code: str
    """Stable code of the diagnostic."""
    message: str
    """What is wrong, with got and allowed values."""
    stage: str
    """Name of the stage at fault."""
    field: str
    """What is at fault there: a stage field, an axis, a model option, or an option of its edges."""
    help: str | None = None
    """What to write instead."""
    asked_by: str | None = None
    """What asks for another value there; it is shown where nobody wrote the one at fault."""


@frozen
class ModelStage:
    """The effective configuration of one stage."""

    options: object
    """Its `additional_config`: an instance of the pipeline's `options` for it."""
    edge_options: Mapping[str, object] = field(default_factory=dict)
    """Instances of its `edge_options`, by the name of the stage that the edge leads to."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """Engine arguments, defaults filled in, and given fields of the stage's kind; always there are
    `model_runner` and `distributed_executor_backend`, as they were decided."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Size of every declared axis."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Of these, the axes that bring more than one rank to a replica."""

    def size(self, axis: str) -> int:
        """Size of an axis; 1 when it is not declared."""
        return self.sizes.get(axis, 1)


@frozen
class ModelView:
    """A whole configuration as the rules of its model see it."""

    stages: Mapping[str, ModelStage]
    """Every stage by name."""
    async_chunk: bool
    """Whether outputs are handed over in chunks as they appear."""
    platform: str
    """Platform of the devices, such as `cpu` or `cuda`."""


ModelCheck: TypeAlias = Callable[[ModelView], Iterable[ModelFinding]]
"""A model's rules over its whole configuration."""


def no_model_findings(_view: ModelView) -> Iterable[ModelFinding]:
    """Say nothing: the rules of a model that has none."""
    return ()
