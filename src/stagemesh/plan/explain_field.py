"""What a field of a deploy or strategy file is: everything that its declarations say about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import hints
from stagemesh.config.docs import field_docs
from stagemesh.config.fields import StageField, stage_fields
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.plain import plain
from stagemesh.config.schema import DeployFile, StageEntry
from stagemesh.plan.declared import START, Declared, declared_at, first_parts, member_names
from stagemesh.plan.table import table, wrapped
from stagemesh.plan.type_text import type_text
from stagemesh.plan.words import taken_text
from stagemesh.spec.axis import SIZE
from stagemesh.spec.frozen import frozen
from stagemesh.spec.unset import UNSET

_LISTS: Final = ("stages", "strategies")
"""Keys that hold stages; a path may begin with one."""


@frozen
class Declaration:
    """What one owner says about a field."""

    owner: str
    """Who takes it."""
    type: str
    """The values it takes, in words."""
    required: bool
    """Whether it must be given."""
    default: object
    """What holds when it is not given."""
    doc: str
    """What it is."""
    members: tuple[str, ...]
    """Names of its members, where it is a mapping with fixed ones."""


@frozen
class FieldDoc:
    """All that is known about one field."""

    path: str
    """The field, without the name of a stage."""
    written: tuple[str, ...]
    """Where it may be written."""
    is_common: bool
    """Whether the pipeline as a whole has it."""
    kinds: tuple[str, ...]
    """Kinds of stage that have it."""
    flags: tuple[str, ...]
    """Flags that set it."""
    declarations: tuple[Declaration, ...]
    """What its owners say: several where they differ."""
    is_member: bool = False
    """Whether it is a member whose name anybody chooses."""


def explain_field(
    path: str, catalog: Catalog, flags: Mapping[str, Collection[str]]
) -> FieldDoc | None:
    """Return what is known about the field at `path`; `None` when there is no such field.

    A first part that is no field may be the name of a stage.
    """
    fields = stage_fields(catalog)
    parts = [part.partition("[")[0] for part in path.split(".")]
    if parts[0] in _LISTS and len(parts) > 1:
        parts = parts[1:]
    for below in (parts, parts[1:]):
        found = declared_at(below, fields, catalog) if below else []
        if found:
            return FieldDoc(
                path=".".join(below),
                written=tuple(_written(below, fields, catalog)),
                is_common=below[0] in hints(DeployFile),
                kinds=tuple(_kinds(below[0], fields, catalog)),
                flags=tuple(_flags(below, catalog, flags)),
                declarations=tuple(map(declaration_of, found)),
                is_member=any(each.is_member for each in found),
            )
    return None


def field_names(catalog: Catalog) -> list[str]:
    """Everything that a path can begin with, for suggestions."""
    return first_parts(stage_fields(catalog), catalog)


def field_text(doc: FieldDoc, width: int | None = None) -> str:
    """Render what is known about a field."""
    about = [
        ("written in", ", ".join(doc.written)),
        ("stages", ", ".join(doc.kinds)),
        ("flags", " ".join(doc.flags)),
    ]
    blocks = [[doc.path], list(table([row for row in about if row[1]], width))]
    for each in doc.declarations:
        told = [f"{each.owner}: {_value_text(each)}", f"  {each.doc}"]
        told += [f"  members: {', '.join(each.members)}"] if each.members else []
        blocks.append([line for text in told for line in wrapped(text, width, "  ")])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _value_text(declaration: Declaration) -> str:
    if declaration.required:
        return f"{declaration.type}; must be given"
    return taken_text(declaration.type, declaration.default)


def _written(
    parts: Sequence[str], fields: Mapping[str, StageField], catalog: Catalog
) -> Iterator[str]:
    name, field = parts[0], fields.get(parts[0])
    if name in catalog.axes:
        yield "an entry of a strategy file"
        member = parts[1] if len(parts) > 1 else SIZE
        for sets in catalog.axes[name].deploy_fields:
            if sets.member == member:
                yield f"a deploy file as `{sets.name}`"
    if name in hints(DeployFile) or (field is not None and field.pipeline_wide):
        yield "the root of a deploy file"
    if any(name in hints(kind) for kind in START):
        yield "a flag or an argument of `Omni`"
    if field is not None:
        yield "an entry of `stages` in a deploy file"
        yield "`--set` and `--stage-overrides`"


def _flags(
    parts: Sequence[str], catalog: Catalog, flags: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Flags of the field itself, or of the fields that say the same about an axis."""
    axis = catalog.axes.get(parts[0])
    if axis is None:
        yield from flags.get(".".join(parts), ())
    else:
        member = parts[1] if len(parts) > 1 else SIZE
        for sets in axis.deploy_fields:
            if sets.member == member:
                yield from flags.get(sets.name, ())


def _kinds(name: str, fields: Mapping[str, StageField], catalog: Catalog) -> list[str]:
    field, axis = fields.get(name), catalog.axes.get(name)
    axis = field.axis if field is not None and field.axis is not None else axis
    if axis is not None:
        kinds = axis.fits
    elif field is None:
        kinds = frozenset()
    elif field.declared_by is StageEntry or field.declared_by in KIND_FIELDS:
        kinds = field.kinds
    else:  # an engine's own
        takers = (each for each in catalog.engines.values() if name in hints(each.options))
        kinds = frozenset().union(*(each.runs for each in takers))
    return sorted(kind.value for kind in kinds)


def declaration_of(declared: Declared) -> Declaration:
    """Write down what one owner says."""
    [field] = (each for each in dataclasses.fields(declared.kind) if each.name == declared.name)
    doc = declared.doc or field_docs(declared.kind).get(declared.name, "")
    default = _default(field) if declared.default is UNSET else declared.default
    return Declaration(
        owner=declared.owner,
        type=type_text(declared.annotation),
        required=default is UNSET,
        default=None if default is UNSET else plain(default),
        doc=" ".join(doc.split()),
        members=member_names(declared),
    )


def _default(field: dataclasses.Field[object]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    return UNSET if field.default_factory is dataclasses.MISSING else field.default_factory()
