"""Groups of replicas: one replica of every stage, which a full-duplex session takes together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.config.tree import Path
from stagemesh.plan.report import Report
from stagemesh.plan.rules.context import RuleContext
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Origin

Group: TypeAlias = tuple[int, ...]
"""The replica of each stage, by ascending stage id."""

_DEPTH: Final = 2
"""Parts of the path to a member of a group: the group and the stage."""
_SHOWN: Final = 4
"""Groups that an example lists."""


def groups_of(
    context: RuleContext, entry: DuplexSession, origin: Callable[..., Origin], report: Report
) -> tuple[Group, ...] | None:
    """Return the groups, or those that follow where none are given; `None` when they are wrong.

    `origin` tells where a member of the list of groups was written.
    """
    counts = {draft.stage_id: draft.stack.num_replicas for draft in context.drafts}
    names = {draft.stage_id: draft.stage.model_stage for draft in context.drafts}
    given = entry.groups
    if given is None:
        if len(set(counts.values())) == 1:
            return tuple((replica,) * len(counts) for replica in range(counts[0]))
        report.add(_unequal(counts, names, origin()))
        return None
    wrong = list(_wrong_members(given, counts, names))
    wrong += _twice(entry.replica_groups or (), given)
    groups: tuple[Group, ...] = ()
    if not wrong:
        groups = tuple(tuple(group[stage] for stage in counts) for group in given)
        wrong += _wrong_together(groups, counts, names)
    for code, path, message, help_text in wrong:
        where = origin(*_as_written(path, entry.replica_groups or ()))
        report.add(Diagnostic(code=code, message=message, origin=where, help=help_text))
    return None if wrong else groups


def _as_written(path: Path, groups: Sequence[Mapping[int | str, int]]) -> Path:
    """Return the path with the number of its stage as the group has it, which may be a text."""
    if len(path) < _DEPTH:
        return path
    number, stage = path
    return (number, next(key for key in groups[int(number)] if int(key) == stage))


def _unequal(counts: Mapping[int, int], names: Mapping[int, str], origin: Origin) -> Diagnostic:
    """Ask for groups, and show some that would do."""
    numbers = ", ".join(f"`{names[stage]}` has `{count}`" for stage, count in counts.items())
    shown = range(min(max(counts.values()), _SHOWN))
    example = ", ".join(
        "{" + ", ".join(f"{stage}: {group % count}" for stage, count in counts.items()) + "}"
        for group in shown
    )
    rest = ", ..." if max(counts.values()) > _SHOWN else ""
    return Diagnostic(
        code="PL075",
        message="stages with different numbers of replicas need `replica_groups`",
        origin=origin,
        help=f"{numbers}; write for example `replica_groups: [{example}{rest}]`",
    )


_Finding: TypeAlias = tuple[str, Path, str, str]
"""Code, path below the list of groups, message and help."""


def _wrong_members(
    groups: Sequence[Mapping[int, int]], counts: Mapping[int, int], names: Mapping[int, str]
) -> Iterator[_Finding]:
    """Say which groups do not name exactly one replica of every stage that there is."""
    for number, group in enumerate(groups):
        whose = f"group `{number}` of `replica_groups`"
        for stage in sorted(counts.keys() - group.keys()):
            help_text = "a group names one replica of every stage of the pipeline"
            yield "PL076", (number,), f"{whose} names no replica of `{names[stage]}`", help_text
        for stage in sorted(group.keys() - counts.keys()):
            known = ", ".join(f"`{name}` is `{each}`" for each, name in names.items())
            yield "PL076", (number, stage), f"{whose} names stage `{stage}`, which is none", known
        for stage in sorted(group.keys() & counts.keys()):
            if group[stage] >= counts[stage]:
                has = f"`{names[stage]}` has `{counts[stage]}`"
                help_text = f"replicas are numbered from `0` to `{counts[stage] - 1}`"
                yield (
                    "PL077",
                    (number, stage),
                    f"{whose} names replica `{group[stage]}`, and {has}",
                    help_text,
                )


def _twice(
    written: Sequence[Mapping[int | str, int]], groups: Sequence[Mapping[int, int]]
) -> Iterator[_Finding]:
    """A number may be written as text, too, which YAML takes for another key."""
    for number, (keys, group) in enumerate(zip(written, groups, strict=True)):
        if len(keys) > len(group):
            message = f"group `{number}` of `replica_groups` names a stage twice"
            yield (
                "PL076",
                (number,),
                message,
                "write the number of a stage once, with quotes or without",
            )


def _wrong_together(
    groups: Sequence[Group], counts: Mapping[int, int], names: Mapping[int, str]
) -> Iterator[_Finding]:
    """Say which groups are there twice, and which replicas are in none."""
    first: dict[Group, int] = {}
    for number, group in enumerate(groups):
        if first.setdefault(group, number) != number:
            message = f"groups `{first[group]}` and `{number}` of `replica_groups` are the same"
            yield "PL078", (number,), message, "name each group once"
    for position, (stage, count) in enumerate(counts.items()):
        idle = sorted(set(range(count)) - {group[position] for group in groups})
        if idle:
            message = f"replica `{idle[0]}` of `{names[stage]}` is in no group"
            yield "PL079", (), message, "put every replica into a group, or start fewer of them"
