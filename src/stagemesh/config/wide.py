"""Values that are given once for every stage that has the field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stagemesh.config.entries import field_patches
from stagemesh.config.fields import StageField
from stagemesh.config.patch import Patch
from stagemesh.config.place import Place, Run
from stagemesh.config.stages import Stages
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import UNSET


def refusing(field: StageField, stages: Iterable[StagePipelineConfig]) -> Iterator[str]:
    """Say why stages of the right kind cannot use a field all the same."""
    for stage in stages:
        reason = field.refused_by(stage)
        if reason is not None:
            yield f"not of `{stage.model_stage}`: {reason}"


def spread(
    field: StageField, value: object, place: Place, stages: Stages, run: Run
) -> Iterator[Patch]:
    """Check a value once and give it to every stage that has the field; one of them must.

    Of an unknown pipeline the value is checked and reaches nobody.
    """
    if value is UNSET or (value is not None and field.check(value, place, run) is UNSET):
        return
    if stages.pipeline is None:
        return
    taking = [stage for stage in stages.pipeline.stages if field.reaches(stage)]
    if not taking:
        kinds = ", ".join(sorted(f"`{kind.value}`" for kind in field.fits))
        message = f"no stage of `{stages.pipeline.model_type}` has a `{field.name}`"
        owners = f"it is a field of {kinds} stages"
        help_text = "; ".join([owners, *refusing(field, stages.pipeline.stages), "leave it out"])
        run.tell("CF031", message, place.key_origin, help_text)
    for stage in taking:
        yield from field_patches(stage.stage_id, field, value, place)
