"""Finds the stages that a file names, and lists them for messages."""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.spec.diagnostic import nearest
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig


@frozen
class Stages:
    """The stages of a pipeline; of an unknown one every name is taken, and every number from 0."""

    pipeline: PipelineConfig | None
    """The pipeline, when it is known."""

    def named(self, name: str) -> StagePipelineConfig | None:
        """Return the stage called `name`."""
        if self.pipeline is None:
            return StagePipelineConfig(stage_id=-1, model_stage=name)
        return self.pipeline.stage(name)

    def numbered(self, stage_id: int) -> StagePipelineConfig | None:
        """Return the stage with that number."""
        if stage_id < 0:
            return None
        if self.pipeline is None:
            return StagePipelineConfig(stage_id=stage_id, model_stage=str(stage_id))
        return next((stage for stage in self.pipeline.stages if stage.stage_id == stage_id), None)

    @property
    def aliases(self) -> Mapping[str, tuple[str, str]]:
        """Names that mean a field of one stage of this pipeline: stage name and field."""
        return {} if self.pipeline is None else self.pipeline.stage_cli_aliases

    @property
    def listed(self) -> str:
        """All stages as a message shows them."""
        if self.pipeline is None:
            return "stages are those of the model, numbered from `0`"
        each = (f"`{stage.model_stage}` ({stage.stage_id})" for stage in self.pipeline.stages)
        return f"stages of `{self.pipeline.model_type}`: {', '.join(each)}"

    def help_for(self, name: str) -> str:
        """Say which stage was meant by a name that is none, if one is near, and list all."""
        stages = () if self.pipeline is None else self.pipeline.stages
        near = nearest(name, (stage.model_stage for stage in stages))
        return self.listed if near is None else f"did you mean `{near}`? {self.listed}"
