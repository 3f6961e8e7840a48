"""Strategies given as Python values, written as the strategy file that says the same; and back.

So there is one reader, and one set of messages. What a file has no words for, patterns that are not
those of the axis, is told here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, cast

from stagemesh.config.check import hints, wrong_type
from stagemesh.config.document import Findings
from stagemesh.config.inputs import ConfigInput
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.plain import plain, plain_fields
from stagemesh.config.schema import StrategyEntry
from stagemesh.config.strategy import Entry
from stagemesh.config.tree import Path, path_text, quoted
from stagemesh.spec.axis import Axis
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.hooks import KernelSpec, LayerHookSpec
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.patterns import (
    Aggregation,
    PartitionByHash,
    Policy,
    RouteByStage,
    Routing,
)
from stagemesh.spec.strategy import MeshAxis, StrategySpec
from stagemesh.spec.unset import UNSET, Unset

SOURCE: Final = "strategy_config"
"""How messages call strategies that are no file."""

STACK: Final = "a list of `StrategySpec`"
"""What one stage is given, in words."""
STACKS: Final = "a mapping from stages to lists of `StrategySpec`"
"""What all stages together are given."""

_ROOT: Final = "strategies"
_DEEPEST: Final = 2
"""Levels of a stage below which nobody puts a spec; values may hold themselves."""
_AS_STACKS: Final = "name the stage: `{STAGE: [StrategySpec(...)]}`"
_AS_STACK: Final = "put it into a list: `[StrategySpec(...)]`"
_AS_LIST: Final = "write a list: `[StrategySpec(...)]`"
_AS_ITEM: Final = "write the specs of a stage one after the other, in a single list"
_AS_AXIS: Final = "write `MeshAxis(kind=..., size=...)`"
_AS_POLICY: Final = "write a pattern that the axis takes, such as `RouteByStage(policy=...)`"
_FIXED: Final = "leave it out: it belongs to the axis and cannot be changed"
_AS_OPTIONS: Final = "it holds further keys of the entry, such as `{'mode': 'strict'}`"
_EXTENSION: Final = "shard_extension"
_OWN: Final = frozenset(hints(StrategyEntry)) - {"l1_owner"}


def file_form(
    given: ConfigInput | Unset, axes: Mapping[str, Axis], findings: Findings
) -> ConfigInput | Unset:
    """Return a strategy as a file has it; what holds no `StrategySpec`s stays as it is.

    They may stand below `strategies` as well, as those of a file do.
    """
    stacks: object = given
    here, around = _Here(path=(), label=SOURCE), dict[str, object]()
    if isinstance(given, Mapping) and _ROOT in given:
        stacks, here, around = given[_ROOT], _Here(path=(_ROOT,), label=_ROOT), {**given}
    if isinstance(stacks, Mapping):
        are_specs = any(_holds_specs(stack, _DEEPEST) for stack in stacks.values())
        return {**around, **written(stacks, axes, findings)} if are_specs else given
    if _holds_specs(stacks, _DEEPEST):
        _Writer(axes, findings).wrong(stacks, here, STACKS, _AS_STACKS)
        return {**around, _ROOT: {}}
    return given


def written(
    stacks: Mapping[str, object], axes: Mapping[str, Axis], findings: Findings
) -> dict[str, object]:
    """Return stages with their specs as a file has them."""
    writer = _Writer(axes, findings)
    return {_ROOT: {name: writer.stack(name, stack) for name, stack in stacks.items()}}


def _holds_specs(given: object, levels: int) -> bool:
    """Whether there is one within so many levels, or what could hold some and never is a list.

    Among the members of an entry only a spec counts: a set there is a wrong value of that entry,
    which the reader tells at its key.
    """
    if isinstance(given, Mapping):
        inside = given.values()
        deeper = levels > 1 and any(_holds_specs(each, levels - 1) for each in inside)
        return deeper or (levels > 0 and any(isinstance(each, StrategySpec) for each in inside))
    if isinstance(given, list | tuple):
        return levels > 0 and any(_holds_specs(each, levels - 1) for each in given)
    return isinstance(given, StrategySpec | Iterator | AbstractSet)


@frozen
class _Here:
    """Where a spec stands, and how messages call it."""

    path: Path
    label: str


class _Writer:
    def __init__(self, axes: Mapping[str, Axis], findings: Findings) -> None:
        self._axes = axes
        self._findings = findings

    def stack(self, stage: str, stack: object) -> object:
        """Write the specs of one stage; what else stands there is left to the reader."""
        if isinstance(stack, list | tuple):
            return [self._item(item, stage, index) for index, item in enumerate(stack)]
        if not _holds_specs(stack, _DEEPEST):
            return stack
        remedy = _AS_STACK if isinstance(stack, StrategySpec) else _AS_LIST
        self.wrong(stack, _Here(path=(_ROOT, stage), label=stage), STACK, remedy)
        return UNSET

    def _item(self, item: object, stage: str, index: int) -> object:
        """Write one of a list; specs that stand too deep are told here."""
        if isinstance(item, StrategySpec):
            return self._entry(item, stage, index)
        if not _holds_specs(item, 1):
            return item
        here = _Here(path=(_ROOT, stage, index), label=f"{stage}[{index}]")
        self.wrong(item, here, "a `StrategySpec`", _AS_ITEM)
        return UNSET

    def _axis(self, given: object, stage: str, index: int) -> tuple[object, object]:
        """Return axis and size as a file has them; what no file could hold is told here."""
        if isinstance(given, MeshAxis):
            kind: object = given.kind
            return str(kind) if isinstance(kind, str) else kind, given.size
        here = _Here(path=(_ROOT, stage, index, "mesh_axis"), label=f"{stage}[{index}].mesh_axis")
        self.wrong(given, here, "a `MeshAxis`", _AS_AXIS)
        return given if isinstance(given, str) and given in self._axes else UNSET, UNSET

    def _entry(self, spec: StrategySpec, stage: str, index: int) -> dict[str, object]:
        kind, size = self._axis(spec.mesh_axis, stage, index)
        here = _Here(path=(_ROOT, stage, index), label=f"{stage}.{kind}")
        entry = dict(self._extension(spec, here))
        entry |= {"axis": kind, "size": size}
        if spec.name is not None:
            entry["name"] = spec.name
        for key, bindings in (
            ("layer_hook_specs", spec.layer_hook_specs),
            ("kernel_specs", spec.kernel_specs),
        ):
            if bindings:
                entry[key] = plain(bindings)
        axis = self._axes.get(str(kind))
        if axis is not None:
            entry.update(self._routing(spec, axis, here))
            if spec.aggregation not in (None, axis.aggregation):
                self._mismatch("aggregation", axis.aggregation, spec.aggregation, here)
        return entry

    def _extension(self, spec: StrategySpec, here: _Here) -> Iterator[tuple[str, object]]:
        extension: object = {} if spec.shard_extension is None else spec.shard_extension
        if not isinstance(extension, Mapping):
            place = _Here(path=(*here.path, _EXTENSION), label=f"{here.label}.{_EXTENSION}")
            self.wrong(extension, place, "a mapping", _AS_OPTIONS)
            return
        for key, value in extension.items():
            if key not in _OWN:
                yield key, plain(value)
                continue
            self._tell(
                "AX009",
                f"`{_EXTENSION}` of {quoted(here.label)} cannot give {quoted(key)}",
                (*here.path, _EXTENSION),
                f"{quoted(key)} has a field of its own",
            )

    def _routing(self, spec: StrategySpec, axis: Axis, here: _Here) -> Mapping[str, object]:
        """Return the keys that say the routing; only axes that spread requests have a choice."""
        routing = spec.routing
        if axis.policies and isinstance(routing, RouteByStage):
            return {"routing": plain(routing.policy)}
        if axis.policies and isinstance(routing, PartitionByHash):
            return {"routing": Policy.HASH.value, "key": routing.key}
        if routing not in (None, axis.routing):
            remedy = _AS_POLICY if axis.policies else _FIXED
            self._mismatch("routing", axis.routing, routing, here, remedy)
        return {}

    def _mismatch(
        self, what: str, own: object, got: object, here: _Here, remedy: str = _FIXED
    ) -> None:
        message = f"{what} of {quoted(here.label)} is {_shown(own)}, got {_shown(got)}"
        self._tell("AX008", message, (*here.path, what), remedy)

    def wrong(self, value: object, here: _Here, expected: str, remedy: str) -> None:
        """Tell that a value has another type than `expected`."""
        where = Nowhere(source=SOURCE, layer=Layer.STRATEGY)
        run = Run()
        wrong_type(value, Place(located=where, path=here.path, label=here.label), run, expected)
        self._findings += [replace(found, help=remedy) for found in run.findings]

    def _tell(self, code: str, message: str, path: Path, remedy: str) -> None:
        origin = Origin(layer=Layer.STRATEGY, source=SOURCE, path=path_text(path))
        self._findings.append(Diagnostic(code=code, message=message, origin=origin, help=remedy))


def _shown(pattern: object) -> str:
    """Write a pattern as plans do, such as `RouteByStage(random)`."""
    if not isinstance(pattern, Routing | Aggregation):
        return quoted(pattern)
    args = ", ".join(str(value) for value in plain_fields(pattern).values())
    return f"`{type(pattern).__name__}({args})`"


def spec_of(entry: Entry) -> StrategySpec:
    """Return an entry in which nothing is wrong as a value, its patterns filled in."""
    axis, members = entry.axis, entry.members
    routing, policy = axis.routing, members["routing"]
    if isinstance(routing, RouteByStage) and isinstance(policy, Policy):
        routing = replace(routing, policy=policy)
    owner = {key: plain(members[key]) for key in ("l1_owner",) if key in members}
    return StrategySpec(
        mesh_axis=MeshAxis(kind=axis.name, size=cast("int", members["size"])),
        name=cast("str", members.get("name", axis.name)),
        routing=routing,
        aggregation=axis.aggregation,
        layer_hook_specs=cast("tuple[LayerHookSpec, ...]", members.get("layer_hook_specs", ())),
        kernel_specs=cast("tuple[KernelSpec, ...]", members.get("kernel_specs", ())),
        shard_extension={**entry.options, **owner},
    )
