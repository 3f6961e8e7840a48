"""What an axis is: everything that its declaration, and those around it, say about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import hints
from stagemesh.config.docs import field_docs
from stagemesh.config.plain import plain, plain_fields
from stagemesh.plan.table import table, wrapped
from stagemesh.plan.type_text import type_text
from stagemesh.plan.words import OWNERS, taken_text, value_text
from stagemesh.spec.axis import Axis, WorldRole
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType

_ROLES = {
    WorldRole.MULTIPLIES_RANKS: "multiplies the ranks of a replica",
    WorldRole.REUSES_RANKS: "lies over ranks that other axes brought",
    WorldRole.MULTIPLIES_REPLICAS: "copies the stage; each copy takes devices of its own",
    WorldRole.NO_RANKS: "takes no ranks: it is about requests",
}


@frozen
class OptionDoc:
    """A further key of an entry."""

    name: str
    """The key."""
    type: str
    """The values it takes, in words."""
    default: object
    """What holds when it is not given."""
    doc: str
    """What it is."""


@frozen
class AxisDoc:
    """All that is known about one axis."""

    name: str
    """Its name."""
    summary: str
    """What it does, on one line."""
    fits: tuple[str, ...]
    """Kinds of stage that it fits."""
    ranks: str
    """What it does to the ranks of a stage."""
    routing: str
    """How work enters it and leaves it again."""
    owner: str
    """Who carries that out."""
    policies: tuple[str, ...]
    """What `routing:` may say; empty where the routing is fixed."""
    needs: tuple[str, ...]
    """What its size has to meet."""
    pairs: tuple[str, ...]
    """Rules between it and other axes."""
    options: tuple[OptionDoc, ...]
    """Further keys of an entry."""
    deploy_fields: tuple[str, ...]
    """Fields of deploy files that say the same."""
    flags: tuple[str, ...]
    """Flags that say the same."""
    executed_by: tuple[str, ...]
    """Engines that execute it; all others only plan it."""
    example: str
    """A strategy file with it."""


def explain_axis(axis: Axis, catalog: Catalog, flags: Mapping[str, Collection[str]]) -> AxisDoc:
    """Return all that is known about an axis."""
    fields = tuple(sets.name for sets in axis.deploy_fields)
    executing = [each.name for each in catalog.engines.values() if axis.name in each.executes]
    if axis.role is WorldRole.MULTIPLIES_REPLICAS:
        executing = ["the runtime"]
    return AxisDoc(
        name=axis.name,
        summary=axis.summary,
        fits=tuple(sorted(kind.value for kind in axis.fits)),
        ranks=_ROLES[axis.role],
        routing=f"{_pattern(axis.routing)} -> {_pattern(axis.aggregation)}",
        owner=OWNERS[axis.owner],
        policies=tuple(policy.value for policy in axis.policies),
        needs=axis.needs,
        pairs=tuple(dict.fromkeys(_pairs(axis, catalog.axes))),
        options=tuple(_options(axis)),
        deploy_fields=fields,
        flags=tuple(flag for name in fields for flag in flags.get(name, ())),
        executed_by=tuple(sorted(executing)),
        example=_example(axis, catalog.axes),
    )


def axis_text(doc: AxisDoc, width: int | None = None) -> str:
    """Render what is known about an axis."""
    rows = [
        ("fits", ", ".join(doc.fits)),
        ("ranks", doc.ranks),
        ("routing", f"{doc.routing}, by {doc.owner}"),
        ("policies", ", ".join(doc.policies)),
        *(("needs", need) for need in doc.needs),
        *(("pairs", pair) for pair in doc.pairs),
        *(
            ("options", f"{each.name}: {taken_text(each.type, each.default)}. {each.doc}")
            for each in doc.options
        ),
        ("deploy file", ", ".join(doc.deploy_fields)),
        ("flags", " ".join(doc.flags)),
        ("runs on", ", ".join(doc.executed_by) or "nothing yet: it can be planned"),
    ]
    blocks = [
        wrapped(f"{doc.name}: {doc.summary}", width),
        list(table([row for row in rows if row[1]], width)),
        ["a strategy file with it:", "", *(f"    {line}" for line in doc.example.splitlines())],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _pattern(pattern: object) -> str:
    values = [value_text(value) for value in plain_fields(pattern).values() if value is not None]
    return type(pattern).__name__ + (f"({', '.join(values)})" if values else "")


def _pairs(axis: Axis, axes: Mapping[str, Axis]) -> Iterator[str]:
    for kinds, factors in _products(axis):
        yield f"its size is {' x '.join(factors)} on {kinds} stages"
    for field, why in axis.excludes_fields.items():
        yield f"not with the field `{field}`: {why}"
    for field in sorted(axis.serves_fields):
        yield f"the field `{field}` means something only beside it, or one that says the same"
    for other in axes.values():
        for one, two in ((axis, other), (other, axis)):
            reason = one.excludes.get(two.name)
            if reason is not None:
                yield f"not with `{other.name}`: {reason}"
        for kinds, factors in _products(other):
            if axis.name in factors:
                yield f"the size of `{other.name}` is {' x '.join(factors)} on {kinds} stages"


def _products(axis: Axis) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Say for which kinds of stage the size of an axis follows from which others."""
    for factors in dict.fromkeys(axis.size_from.values()):
        kinds = (kind.value for kind, product in axis.size_from.items() if product == factors)
        yield ", ".join(f"`{kind}`" for kind in kinds), factors


def _options(axis: Axis) -> Iterator[OptionDoc]:
    docs = field_docs(axis.options)
    for field in dataclasses.fields(axis.options):
        yield OptionDoc(
            name=field.name,
            type=type_text(hints(axis.options)[field.name]),
            default=plain(field.default),
            doc=" ".join(docs.get(field.name, "").split()),
        )


def _example(axis: Axis, axes: Mapping[str, Axis]) -> str:
    """Write the smallest strategy that the axis is valid in, as far as declarations tell."""
    kind = min(axis.fits, key=list(ExecutionType).index)
    entries = []
    if axis.role is WorldRole.REUSES_RANKS and not axis.supplies_world:
        entries.append(f"{{axis: {_carrier(axis, kind, axes)}, size: 2}}")
    routing = f", routing: {axis.policies[-1].value}" if axis.policies else ""
    entries.append(f"{{axis: {axis.name}, size: 2{routing}}}")
    listed = "\n".join(f"    - {entry}" for entry in entries)
    return f"strategies:\n  STAGE:  # of kind {kind.value}\n{listed}\n"


def _carrier(axis: Axis, kind: ExecutionType, axes: Mapping[str, Axis]) -> str:
    """Choose an axis that brings the ranks: one whose size it takes, else the fastest that fits."""
    factors = axis.size_from.get(kind, ())
    bringing = [
        each
        for each in axes.values()
        if each.role is WorldRole.MULTIPLIES_RANKS
        and kind in each.fits
        and (not factors or each.name in factors)
    ]
    return max(
        bringing, key=lambda each: (len(each.fits) == len(axis.fits), each.mesh_position)
    ).name
