"""The declarations that configuration is checked against, gathered once from the registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from stagemesh.config.schema import AUTO
from stagemesh.spec.axis import Axis
from stagemesh.spec.connector import ConnectorSpec
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from stagemesh.spec.registry import AXES, CONNECTORS, ENGINES, MODELS


@frozen
class Model:
    """A pipeline and the package that ships it."""

    pipeline: PipelineConfig
    """The declaration."""
    package: str
    """Package that holds the model's `deploy/` folder."""


@frozen
class Catalog:
    """Every declaration that can be named in a file."""

    axes: Mapping[str, Axis] = field(default_factory=dict)
    """Axes by name."""
    engines: Mapping[str, EngineSpec] = field(default_factory=dict)
    """Engines by name."""
    connectors: Mapping[str, ConnectorSpec] = field(default_factory=dict)
    """Connectors by the names that deploy files use."""
    models: tuple[Model, ...] = ()
    """Models, ordered by name."""

    @classmethod
    def installed(cls) -> Catalog:
        """Load what is installed; raises `PluginError` for a plug-in that cannot be loaded."""
        return cls(
            axes={axis.name: axis for axis in AXES.declarations()},
            engines={engine.name: engine for engine in ENGINES.declarations()},
            connectors={
                name: connector
                for connector in CONNECTORS.declarations()
                for name in connector.config_names
            },
            models=tuple(
                Model(pipeline=pipeline, package=module.rpartition(".")[0])
                for name, module in sorted(MODELS.modules().items())
                for pipeline in MODELS.load(name)
            ),
        )


def default_engine(kind: ExecutionType, engines: Iterable[EngineSpec]) -> EngineSpec | None:
    """Return the engine that `auto` means for a kind of stage, whatever is installed besides."""
    fitting = (spec for spec in engines if kind in spec.default_for)
    return min(fitting, key=lambda spec: spec.name, default=None)


def chosen_engine(
    named: object, kind: ExecutionType, engines: Mapping[str, EngineSpec]
) -> EngineSpec | None:
    """Return the engine that a stage names, or the default where it names none."""
    if named is None or named == AUTO:
        return default_engine(kind, engines.values())
    return engines.get(str(named))
