"""Which options of a stage or a section act, by what their declarations say (`spec.switch`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import TypeAlias

from stagemesh.config.catalog import chosen_engine
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.plain import plain
from stagemesh.config.settings import Settings, Sourced, StageSettings
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from stagemesh.spec.switch import Needs, Switch, needs_of

Group: TypeAlias = tuple[Switch, ...]
"""Switches of which one must let an option act."""

Given: TypeAlias = Callable[[str], Sourced[object] | None]
"""What was given for an option; `None` where nothing was."""


@frozen
class Owner:
    """What has options: a stage, or a section with keys of its own."""

    name: str
    """What messages call it."""
    needs: Mapping[str, Needs]
    """What its options need, by name."""
    has: frozenset[str]
    """Names of all its options: one that it does not have is no switch here."""
    defaults: Mapping[str, object]
    """Values that hold, and ask for nothing, where an option is not given."""
    said: Given
    """What was given for an option."""

    def given(self, name: str) -> Sourced[object] | None:
        """Return what was given for an option, unless that is the case anyway."""
        said = self.said(name)
        if said is None or said.value is None:
            return None
        is_usual = name in self.defaults and self.defaults[name] == plain(said.value)
        return None if is_usual else said

    def words(self) -> Iterator[tuple[str, Sourced[object], Group | None]]:
        """Yield the options that were given and ask for something; with each, what lets it not act.

        That are switches of which one should, and `None` where it acts.
        """
        for name, needs in self.needs.items():
            given = self.given(name)
            if given is not None and needs.asks(given.value):
                yield name, given, self._unmet(needs)

    def _unmet(self, needs: Needs) -> Group | None:
        for group in needs.all_of:
            known = tuple(each for each in group if each.name in self.has)
            if known and not any(each.acts(self._value(each.name)) for each in known):
                return known
        return None

    def _value(self, name: str) -> object:
        said = self.said(name)
        return self.defaults.get(name) if said is None or said.value is None else said.value


def stage_owner(name: str, kind: ExecutionType, engine: EngineSpec | None, said: Given) -> Owner:
    """Return a stage with the options of its kind and those of its engine."""
    declared = [each for each, kinds in KIND_FIELDS.items() if kind in kinds]
    declared += [] if engine is None else [engine.options]
    options = () if engine is None else fields(engine.options)
    return Owner(
        name=name,
        needs={name: needs for each in declared for name, needs in needs_of(each).items()},
        has=frozenset(item.name for each in declared for item in fields(each)),
        defaults={item.name: item.default for item in options},
        said=said,
    )


def passing_by(
    pipeline: PipelineConfig, settings: Settings, engines: Mapping[str, EngineSpec]
) -> Settings:
    """Take what a flag says of all stages from those where nothing acts on it, if one acts."""
    kinds = {stage.stage_id: stage.execution_type for stage in pipeline.stages}
    words = [
        (stage.stage_id, name, given.origin, group is None)
        for stage in settings.stages
        for name, given, group in _owner(stage, kinds[stage.stage_id], engines).words()
        if given.origin.layer is Layer.GLOBAL
    ]
    acting = {origin for _, _, origin, acts in words if acts}
    idle = {(stage, name) for stage, name, origin, acts in words if not acts and origin in acting}
    if not idle:
        return settings
    return replace(
        settings,
        stages=tuple(
            replace(
                stage,
                fields={
                    name: given
                    for name, given in stage.fields.items()
                    if (stage.stage_id, name) not in idle
                },
            )
            for stage in settings.stages
        ),
    )


def _owner(stage: StageSettings, kind: ExecutionType, engines: Mapping[str, EngineSpec]) -> Owner:
    named = stage.fields.get("engine")
    engine = chosen_engine(None if named is None else named.value, kind, engines)
    return stage_owner(stage.name, kind, engine, stage.fields.get)
