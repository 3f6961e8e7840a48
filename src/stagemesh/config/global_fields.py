"""Reads fields that were said for all stages: each reaches the stages that can use it.

A stage can use a field when its kind has it, when its engine takes it, or when the axis that it
speaks about fits and the stage does not exclude it. A field that no stage can use is an error that
says which kind of stage has it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence

from stagemesh.config.catalog import chosen_engine
from stagemesh.config.check import hints
from stagemesh.config.entries import read_stage
from stagemesh.config.fields import StageField
from stagemesh.config.flag_rules import FIRST_CHOICE, ONE_STAGE_ONLY
from stagemesh.config.given import origin_of, place_of, plain_value
from stagemesh.config.inputs import GivenField
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.patch import UNKNOWN_STAGE, Patch, of_stages
from stagemesh.config.place import Place, Run
from stagemesh.config.plain import plain
from stagemesh.config.scope import Scope
from stagemesh.config.tree import quoted
from stagemesh.config.wide import refusing
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.pipeline import StagePipelineConfig


def read_global_fields(
    given: Iterable[GivenField], scope: Scope, said: Sequence[Patch], only: object, run: Run
) -> list[Patch]:
    """Read fields for all stages; `said` is everything else, and `only` the one stage started."""
    return _Reader(scope, said, only, run).read(list(given))


class _Reader:
    """One reading: who runs the stages, and which of them are started."""

    def __init__(self, scope: Scope, said: Sequence[Patch], only: object, run: Run) -> None:
        self._scope = scope
        self._said = said
        self._only = only
        self._run = run
        pipeline = scope.stages.pipeline
        self._all = () if pipeline is None else pipeline.stages
        self._started = [stage for stage in self._all if only in (None, stage.stage_id)]
        self._engines = {stage.stage_id: self._engine(stage) for stage in self._started}

    def read(self, given: list[GivenField]) -> list[Patch]:
        fields = [each for each in given if each.name not in self._scope.stages.aliases]
        aliases = [each for each in given if each.name in self._scope.stages.aliases]
        narrow = [patch for each in aliases for patch in self._alias(each)]
        taken = {(patch.stage_id, patch.path) for patch in narrow}
        wide = [patch for each in self._of_one_stage(fields) for patch in self._field(each)]
        return [patch for patch in wide if (patch.stage_id, patch.path) not in taken] + narrow

    # --- fields that a pipeline gives to one stage ------------------------------------------------

    def _alias(self, given: GivenField) -> Iterator[Patch]:
        """Read a name that means a field of one stage; what is said of that stage itself wins."""
        owner, name = self._scope.stages.aliases[given.name]
        stage = next((each for each in self._started if each.model_stage == owner), None)
        if stage is None:
            self._tell_useless(given, f"`{given.name}` means `{owner}.{name}`")
            return
        field = self._scope.fields[name]
        value = plain_value(given, field.annotations[0], self._run)
        place = Place(located=place_of(given).located)
        patches = read_stage({name: value}, place, stage.stage_id, self._scope.fields, self._run)
        for patch in patches:
            yield patch
            self._tell_replaced(given, patch)

    def _tell_replaced(self, given: GivenField, patch: Patch) -> None:
        for other in self._said:
            same = (other.stage_id, other.path) == (patch.stage_id, patch.path)
            if same and other.origin.layer > patch.origin.layer and other.value != patch.value:
                self._run.findings.append(
                    Diagnostic(
                        code="CF064",
                        severity=Severity.WARNING,
                        message=f"`{given.name}`, {quoted(patch.value)}, is replaced by"
                        f" {quoted(other.value)}",
                        origin=other.origin,
                        notes=(Note(message="it is given here", origin=origin_of(given)),),
                        help="what is said of the stage itself wins; leave one of them out",
                    )
                )

    # --- fields of stages -------------------------------------------------------------------------

    def _field(self, given: GivenField) -> Iterator[Patch]:
        field = self._scope.fields[given.name]
        value = plain_value(given, field.annotations[0], self._run)
        reached = [each for each in self._reached(field) if each.execution_type in given.kinds]
        if not reached and self._all:
            owners = _owners(field, self._scope.catalog.engines.values())
            self._tell_useless(given, "; ".join([owners, *refusing(field, self._started)]))
        place = Place(located=place_of(given).located)
        run = self._run
        for stage_id in [stage.stage_id for stage in reached] or [UNKNOWN_STAGE]:
            patches = read_stage({given.name: value}, place, stage_id, self._scope.fields, run)
            yield from of_stages(patches)
            run = Run(partial=True)  # what is wrong with the value is told once

    def _reached(self, field: StageField) -> list[StagePipelineConfig]:
        takers = [stage for stage in self._started if self._takes(stage, field)]
        kind = FIRST_CHOICE.get(field.name)
        if any(stage.execution_type is kind for stage in self._all):
            return [stage for stage in takers if stage.execution_type is kind]
        return takers

    def _takes(self, stage: StagePipelineConfig, field: StageField) -> bool:
        if _is_of_kinds(field) and field.reaches(stage):
            return True
        engine = self._engines[stage.stage_id]
        takes = engine is not None and field.name in hints(engine.options)
        return takes and field.refused_by(stage) is None

    def _engine(self, stage: StagePipelineConfig) -> EngineSpec | None:
        """Return the engine of a stage, as far as it can be told before all is merged."""
        engines = self._scope.catalog.engines
        named: object = None
        for patch in sorted(self._said, key=lambda patch: patch.origin.layer):
            if (patch.stage_id, patch.path) == (stage.stage_id, ("engine",)):
                named = patch.value
        return chosen_engine(named, stage.execution_type, engines)

    def _of_one_stage(self, given: list[GivenField]) -> list[GivenField]:
        """Drop, and tell together, what never fits several stages at once."""
        if len(self._all) < 2:  # noqa: PLR2004  with one stage, it is that one's
            return given
        refused = [each for each in given if self._must_name_stage(each)]
        if refused:
            takers = [each for each in self._all if self._takes_any(each, refused)]
            self._tell_must_name(refused, takers)
        return [each for each in given if each not in refused]

    def _takes_any(self, stage: StagePipelineConfig, given: Iterable[GivenField]) -> bool:
        return any(stage.execution_type in self._scope.fields[each.name].kinds for each in given)

    def _must_name_stage(self, given: GivenField) -> bool:
        kinds = {stage.execution_type for stage in self._all}
        if given.name not in ONE_STAGE_ONLY or FIRST_CHOICE.get(given.name) in kinds:
            return False
        return bool(kinds & self._scope.fields[given.name].kinds)

    def _tell_must_name(self, given: list[GivenField], takers: list[StagePipelineConfig]) -> None:
        values = {
            each.name: plain(plain_value(each, self._scope.fields[each.name].annotations[0], Run()))
            for each in given
        }
        shown = shlex.quote(json.dumps({takers[0].model_stage: values}, default=str))
        names = ", ".join(f"`{stage.model_stage}`" for stage in takers)
        self._run.findings.append(
            Diagnostic(
                code="CF062",
                message=f"`{given[0].source}` must say which of `{len(self._all)}` stages it means",
                origin=origin_of(given[0]),
                notes=tuple(
                    Note(message="so must this", origin=origin_of(each)) for each in given[1:]
                ),
                help=f"write `--stage-overrides {shown}`; stages that take it: {names}",
            )
        )

    # --- who has it -------------------------------------------------------------------------------

    def _tell_useless(self, given: GivenField, owners: str) -> None:
        pipeline = self._scope.stages.pipeline
        assert pipeline is not None
        where = f"any stage of `{pipeline.model_type}`"
        if self._only is not None:
            started = [f"`{stage.model_stage}`, which" for stage in self._started]
            where = f"{started[0] if started else 'anything that'} is started here"
        kinds = ", ".join(
            f"`{stage.model_stage}` ({stage.execution_type.value})" for stage in self._all
        )
        message = f"`{given.source}` cannot be used by {where}"
        self._run.tell("CF060", message, origin_of(given), f"{owners}; stages are {kinds}")


def _owners(field: StageField, engines: Iterable[EngineSpec]) -> str:
    """Say whose a field is."""
    if not _is_of_kinds(field):
        takers = [f"`{each.name}`" for each in engines if field.name in hints(each.options)]
        return f"`{field.name}` is an option of engine {', '.join(sorted(takers))}"
    names = ", ".join(sorted(f"`{kind.value}`" for kind in field.fits))
    return f"`{field.name}` is a field of {names} stages"


def _is_of_kinds(field: StageField) -> bool:
    """Whether kinds of stage have the field, and not only engines."""
    return field.axis is not None or field.declared_by in KIND_FIELDS
