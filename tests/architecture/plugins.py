"""What is registered, under which names, and where each plug-in is at home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from stagemesh.spec.registry import AXES, COMMANDS, CONNECTORS, ENGINES, MODELS

PACKAGES: Final = {
    kind.package: kind.modules for kind in (AXES, CONNECTORS, ENGINES, MODELS, COMMANDS)
}
"""What lists the modules of every kind of plug-in, by the kind's package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The files of one plug-in: the only ones that may know it by name."""

    module: str
    """The declaring module."""
    paths: tuple[str, ...]
    """Files and folders, inside the package."""
    names: frozenset[str] = frozenset()
    """What it is called in configuration, stages of a model included."""

    def holds(self, path: PurePosixPath) -> bool:
        """Whether a file belongs to the plug-in."""
        return any(str(path) == own or PurePosixPath(own) in path.parents for own in self.paths)


def homes() -> Iterator[Home]:
    """Every plug-in that this project ships."""
    named = _names()
    for package, modules in PACKAGES.items():
        room = package.removeprefix("stagemesh.")
        for name, module in modules().items():
            if not module.startswith(f"{package}."):
                continue
            yield Home(
                module=module,
                paths=(
                    f"{room}/{name}",
                    f"{room}/{name}.py",
                    f"{room}/_{name}",
                    f"{room}/_{name}.py",
                    f"parallel/{name}.py",
                ),
                names=frozenset(named[room, name]),
            )


def _names() -> Mapping[tuple[str, str], set[str]]:
    named: dict[tuple[str, str], set[str]] = {}
    for name in AXES.modules():
        named["axes", name] = {axis.name for axis in AXES.load(name)}
    for name in CONNECTORS.modules():
        specs = CONNECTORS.load(name)
        named["connectors", name] = {n for spec in specs for n in (spec.name, *spec.config_names)}
    for name in ENGINES.modules():
        named["engines", name] = {engine.name for engine in ENGINES.load(name)}
    for name in MODELS.modules():
        words: set[str] = set()
        for pipeline in MODELS.load(name):
            words |= {pipeline.model_type, *pipeline.hf_architectures}
            words |= {stage.model_stage for stage in pipeline.stages}
        named["models", name] = words
    # The names of commands are everyday words (`plan`, `run`): only imports of them are held.
    named |= {("cli", name): set() for name in COMMANDS.modules()}
    return named
