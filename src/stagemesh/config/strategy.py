"""Reads a strategy file: which axes, of which size, are laid over which stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from stagemesh.config.check import checker, hints, key_meant, missing_key, unknown_key, wrong_type
from stagemesh.config.document import Document
from stagemesh.config.entries import axis_patches
from stagemesh.config.flow import flow_text
from stagemesh.config.patch import Patch
from stagemesh.config.place import Place, Run
from stagemesh.config.refusals import DEPLOY_FILE
from stagemesh.config.schema import DeployFile, StrategyEntry, StrategyFile
from stagemesh.config.stages import Stages
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import Axis
from stagemesh.spec.diagnostic import Diagnostic, Note, did_you_mean
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import UNSET

_ROOT: Final = "strategies"
_KEYS: Final = frozenset(hints(StrategyEntry))
_EXAMPLE: Final = "thinker: [{axis: tp, size: 2}]"
_REWRITE: Final = 72
"""Characters of a rewrite that a help sentence shows whole."""

EXPECTED: Final = f"a mapping with `{_ROOT}`"
"""What a strategy file holds, for the message about one that holds something else."""


@frozen
class Entry:
    """One axis of a stack, checked: what was said about it."""

    axis: Axis
    """The axis."""
    members: Mapping[str, object]
    """Keys that any entry may have, of their types; `UNSET` where one was refused."""
    options: Mapping[str, object]
    """Keys that only this axis has."""
    place: Place
    """Where it stands."""


@frozen
class StageStack:
    """The entries of one stage."""

    name: str
    """Its name as it was written."""
    stage: StagePipelineConfig | None
    """The stage, when there is one of that name."""
    entries: tuple[Entry, ...]
    """The entries, in the order of the file."""


def read_strategy(
    document: Document, stages: Stages, axes: Mapping[str, Axis], run: Run
) -> list[Patch]:
    """Read a strategy file into patches; what is wrong goes to `run`."""
    return [
        patch
        for stack in read_stacks(document, stages, axes, run)
        if stack.stage is not None
        for entry in stack.entries
        for patch in _patches(stack.stage.stage_id, entry)
    ]


def read_stacks(
    document: Document, stages: Stages, axes: Mapping[str, Axis], run: Run
) -> list[StageStack]:
    """Read a strategy file into stacks; what is wrong goes to `run`."""
    root = Place(located=document)
    misspelt = _misspelt_root(document)
    if misspelt is not None:
        unknown_key(misspelt, root, run, hints(StrategyFile))
        return []
    if _ROOT not in document.value:
        is_deploy = any(_is_of_deploy(key, stages) for key in document.value)
        help_text = DEPLOY_FILE if is_deploy else _rewrite(document.value)
        run.tell("CF011", f"`{_ROOT}` is missing", root.origin, help_text)
        return []
    for key in document.value:
        if key in hints(DeployFile):
            message = f"{quoted(key)} is what a deploy file holds"
            run.tell("CF029", message, root.child(key).key_origin, DEPLOY_FILE)
        elif key != _ROOT:
            unknown_key(key, root, run, hints(StrategyFile))
    given, place = document.value[_ROOT], root.child(_ROOT)
    if not isinstance(given, Mapping):
        wrong_type(given, place, run, "a mapping from stage names to lists of axes")
        return []
    reader = _Reader(stages, axes, run)
    return [
        reader.stack(name, stack, place.child(name, label=str(name)))
        for name, stack in given.items()
    ]


def is_strategy(document: Document) -> bool:
    """Whether the root is that of a strategy, even with a slip of the keyboard in it."""
    return _ROOT in document.value or _misspelt_root(document) is not None


def _misspelt_root(document: Document) -> str | int | None:
    """Return the key that was meant to be the root of a strategy, where none is."""
    if _ROOT in document.value:
        return None
    return key_meant(_ROOT, document.value, [_ROOT, *hints(DeployFile)])


def _is_of_deploy(key: str | int, stages: Stages) -> bool:
    """Whether a key is one of a deploy file's root, and no stage that was written without root."""
    return key in hints(DeployFile) and (stages.pipeline is None or stages.named(str(key)) is None)


def _rewrite(given: Mapping[str | int, object]) -> str:
    """Say how a file without its root is written: its own stages below that, where they fit."""
    inner = _members(given)
    if not given or len(inner) > _REWRITE:
        inner = _EXAMPLE
    return f"put `{_ROOT}` above the stages: `{_ROOT}: {{{inner}}}`"


def _members(given: Mapping[str | int, object]) -> str:
    return ", ".join(f"{flow_text(key)}: {_flow(value)}" for key, value in given.items())


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + _members(value) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return flow_text(value)


def _patches(stage_id: int, entry: Entry) -> Iterator[Patch]:
    axis, place = entry.axis.name, entry.place
    yield from axis_patches(stage_id, axis, {"enabled": True}, place.child("axis"))
    for key, member in _MEMBERS.items():
        if entry.members.get(key) is not None:
            yield Patch(
                stage_id=stage_id,
                path=("axes", axis, member),
                value=entry.members[key],
                origin=place.child(key).origin,
                inside=place.child(key),
            )
    for name, value in entry.options.items():
        yield Patch(
            stage_id=stage_id,
            path=("axes", axis, "options", name),
            value=value,
            origin=place.child(name).origin,
        )


_MEMBERS: Final[Mapping[str, str]] = {
    "size": "size",
    "routing": "routing",
    "l1_owner": "owner",
    "name": "label",
    "layer_hook_specs": "layer_hook_specs",
    "kernel_specs": "kernel_specs",
}
"""Keys of an entry and the members of the axis settings that they set."""


def policy_of(text: str, axis: Axis, place: Place, run: Run) -> object:
    """Return the policy that a text means; `UNSET` for one that the axis does not take."""
    policy = Policy.parse(text)
    if policy in axis.policies:
        return policy
    allowed = [each.value for each in axis.policies]
    message = f"{place.name} does not take {quoted(text)}"
    return run.tell("AX004", message, place.origin, did_you_mean(text, allowed))


class _Reader:
    def __init__(self, stages: Stages, axes: Mapping[str, Axis], run: Run) -> None:
        self._stages = stages
        self._axes = axes
        self._run = run

    def stack(self, name: str | int, stack: object, place: Place) -> StageStack:
        """Read the stack of axes of one stage."""
        stage = self._find(name, place)
        if not isinstance(stack, tuple):
            wrong_type(stack, place, self._run, "a list of axes")
            stack = ()
        entries: dict[str, Entry] = {}
        for index, value in enumerate(stack):
            here = place.child(index)
            if not isinstance(value, Mapping):
                wrong_type(value, here, self._run, "a mapping with `axis` and `size`")
                continue
            axis = self._axis(value, stage, here)
            label = f"{place.label}.{axis.name}" if axis is not None else here.label
            entry = self._entry(value, axis, dataclasses.replace(here, label=label))
            if entry is None:
                continue
            first = entries.setdefault(entry.axis.name, entry)
            if first is not entry:
                self._twice(entry, first, place)
        return StageStack(name=str(name), stage=stage, entries=tuple(entries.values()))

    def _find(self, name: str | int, place: Place) -> StagePipelineConfig | None:
        if isinstance(name, int):
            message = f"stage `{name}` is given by number, a strategy names stages"
            self._run.tell("CF022", message, place.key_origin, self._stages.listed)
            return None
        stage = self._stages.named(name)
        if stage is None:
            message = f"no stage {quoted(name)} in this pipeline"
            self._run.tell("CF020", message, place.key_origin, self._stages.help_for(name))
        return stage

    def _axis(
        self, entry: Mapping[str | int, object], stage: StagePipelineConfig | None, place: Place
    ) -> Axis | None:
        here = place.child("axis")
        if "axis" not in entry:
            misspelt = key_meant("axis", entry, _KEYS)
            if misspelt is None:
                missing_key("axis", place, self._run)
            else:
                unknown_key(misspelt, place, self._run, _KEYS)
            return None
        name = checker(str)(entry["axis"], here, self._run)
        if not isinstance(name, str):
            return None
        if name not in self._axes:
            message = f"unknown axis {quoted(name)} for {quoted(place.label.partition('[')[0])}"
            self._run.tell("AX001", message, here.origin, did_you_mean(name, self._fitting(stage)))
            return None
        return self._axes[name]

    def _fitting(self, stage: StagePipelineConfig | None) -> list[str]:
        """Name the axes that a stage can have: all of them where it is not known."""
        if stage is None or self._stages.pipeline is None:
            return list(self._axes)
        return [name for name, axis in self._axes.items() if stage.execution_type in axis.fits]

    def _twice(self, entry: Entry, first: Entry, place: Place) -> None:
        self._run.findings.append(
            Diagnostic(
                code="AX002",
                message=f"axis `{entry.axis.name}` is given twice for {place.name}",
                origin=entry.place.child("axis").origin,
                notes=(Note(message="first given here", origin=first.place.child("axis").origin),),
                help="keep one entry; the sizes of two are not multiplied",
            )
        )

    def _entry(
        self, entry: Mapping[str | int, object], axis: Axis | None, place: Place
    ) -> Entry | None:
        members: dict[str, object] = {}
        self._require("size", entry, axis, place)
        for key, value in entry.items():
            here = place.child(key)
            if key == "size" or (key in _KEYS and value is not None and key != "axis"):
                members[str(key)] = checker(hints(StrategyEntry)[str(key)])(value, here, self._run)
        if axis is None:
            return None
        members["routing"] = self._policy(members.get("routing"), axis, place)
        self._check_owner(members.get("l1_owner"), axis, place)
        options = dict(self._options(entry, axis, place))
        return Entry(axis=axis, members=members, options=options, place=place)

    def _policy(self, text: object, axis: Axis, place: Place) -> object:
        """Turn the text of `routing` into the policy that it means."""
        if not isinstance(text, str):
            return text
        here = place.child("routing")
        if not axis.policies:
            takers = sorted(axis.name for axis in self._axes.values() if axis.policies)
            return self._run.tell(
                "AX003",
                f"{place.name} takes no `routing`, the routing of `{axis.name}` is fixed",
                here.origin,
                "axes that take one: " + ", ".join(f"`{name}`" for name in takers),
            )
        return policy_of(text, axis, here, self._run)

    def _check_owner(self, owner: object, axis: Axis, place: Place) -> None:
        if owner in (None, UNSET, axis.owner):
            return
        alike = sorted(
            other.name
            for other in self._axes.values()
            if other.owner is owner and other.policies and axis.policies
        )
        help_text = f"write `{axis.owner.value}` or leave `l1_owner` out"
        if alike:
            help_text += "; axes of that owner: " + ", ".join(f"`{name}`" for name in alike)
        message = f"{place.name} is owned by `{axis.owner.value}`, which cannot be changed"
        self._run.tell("AX005", message, place.child("l1_owner").origin, help_text)

    def _options(
        self, entry: Mapping[str | int, object], axis: Axis, place: Place
    ) -> Iterator[tuple[str, object]]:
        """Check the keys of an entry that only its axis knows."""
        types_of = hints(axis.options)
        for key, value in entry.items():
            if key in _KEYS:
                continue
            if key not in types_of:
                unknown_key(key, place, self._run, _KEYS | set(types_of))
            else:
                built = checker(types_of[str(key)])(value, place.child(key), self._run)
                yield str(key), built
        for option in dataclasses.fields(axis.options):
            no_default = option.default is option.default_factory is dataclasses.MISSING
            if no_default:
                self._require(option.name, entry, axis, place)

    def _require(
        self, name: str, entry: Mapping[str | int, object], axis: Axis | None, place: Place
    ) -> None:
        """Tell a missing key; one that was misspelt is told as that, where the axis is known."""
        if name in entry:
            return
        if axis is None or key_meant(name, entry, _KEYS | set(hints(axis.options))) is None:
            missing_key(name, place, self._run)
