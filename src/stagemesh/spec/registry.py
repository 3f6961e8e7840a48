"""Finds plug-ins: files of one folder per kind, and entry points of other distributions.

A plug-in's name is its file's name (for models, its folder's), so listing names imports nothing. A
file whose name starts with `_` is no plug-in. A third party adds an entry point in the group of
the kind (`stagemesh.axes`, ...) whose name is the plug-in's name and whose value is the declaring
module. A plug-in that cannot be loaded is an error that names it, never a silent drop.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from stagemesh.errors import StagemeshError
from stagemesh.spec._entry_points import entry_points
from stagemesh.spec.frozen import frozen
from stagemesh.spec.reference import resolve

if TYPE_CHECKING:
    from stagemesh.spec.axis import Axis
    from stagemesh.spec.command import Command
    from stagemesh.spec.connector import ConnectorSpec
    from stagemesh.spec.engine import EngineSpec
    from stagemesh.spec.pipeline import PipelineConfig

Declaration = TypeVar("Declaration", bound=object)


class PluginError(StagemeshError):
    """A plug-in could not be loaded; the message names it and says why."""

    code = "CF090"
    help = "install a version of its package that fits this stagemesh, or remove the package"


@frozen
class PluginKind(Generic[Declaration]):
    """One kind of plug-in."""

    package: str
    """Package whose modules are the plug-ins; also the entry point group."""
    attribute: str
    """What a module exports."""
    declares: str
    """Reference of the type of that export, so that listing commands loads no other kind."""
    many: bool = False
    """Whether the export is a tuple of declarations rather than one."""
    submodule: str = ""
    """Module inside each plug-in's folder that declares it, with its dot; empty for plain files."""

    def modules(self) -> Mapping[str, str]:
        """Module of every plug-in by name, without importing any of them."""
        return _modules(self.package, self.submodule)

    def declarations(self) -> tuple[Declaration, ...]:
        """Load every plug-in of this kind, in the order of their names."""
        return tuple(found for name in sorted(self.modules()) for found in self.load(name))

    def load(self, name: str) -> tuple[Declaration, ...]:
        """Load what one plug-in declares; raises `KeyError` for an unknown name."""
        module_name = self.modules()[name]
        try:
            module = importlib.import_module(module_name)
        except (
            Exception
        ) as error:  # a plug-in is foreign code: whatever it raises is told with its name
            message = f"plug-in `{name}` ({module_name}) failed to load: {error!r}"
            raise PluginError(message) from error
        exported = vars(module).get(self.attribute)
        found = exported if self.many and isinstance(exported, tuple) else (exported,)
        declared = cast("type[Declaration]", resolve(self.declares))
        if not all(isinstance(item, declared) for item in found):
            wanted = f"`{self.attribute}` of `{self.declares}`"
            message = f"plug-in `{name}` ({module_name}) exports no {wanted}"
            raise PluginError(message)
        return cast("tuple[Declaration, ...]", found)


@functools.cache
def _modules(package: str, submodule: str) -> Mapping[str, str]:
    found = {
        module.name: f"{package}.{module.name}{submodule}"
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
        if not module.name.startswith("_") and (module.ispkg or not submodule)
    }
    for name, module_name in entry_points(package):
        if name in found:
            message = (
                f"plug-in `{name}` of `{package}` exists twice: `{found[name]}`, `{module_name}`"
            )
            raise PluginError(message)
        found[name] = module_name
    return found


AXES: Final[PluginKind[Axis]] = PluginKind(
    package="stagemesh.axes", attribute="AXIS", declares="stagemesh.spec.axis:Axis"
)
CONNECTORS: Final[PluginKind[ConnectorSpec]] = PluginKind(
    package="stagemesh.connectors",
    attribute="CONNECTOR",
    declares="stagemesh.spec.connector:ConnectorSpec",
)
ENGINES: Final[PluginKind[EngineSpec]] = PluginKind(
    package="stagemesh.engines", attribute="ENGINE", declares="stagemesh.spec.engine:EngineSpec"
)
MODELS: Final[PluginKind[PipelineConfig]] = PluginKind(
    package="stagemesh.models",
    attribute="PIPELINES",
    declares="stagemesh.spec.pipeline:PipelineConfig",
    many=True,
    submodule=".pipeline",
)
COMMANDS: Final[PluginKind[Command]] = PluginKind(
    package="stagemesh.cli", attribute="COMMAND", declares="stagemesh.spec.command:Command"
)
