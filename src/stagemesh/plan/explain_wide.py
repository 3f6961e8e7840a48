"""Values of the pipeline as a whole: what declares them, and who acts on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import hints
from stagemesh.config.edges import EDGES
from stagemesh.config.schema import ConnectorEntry, EdgeEntry
from stagemesh.plan.declared import Declared
from stagemesh.plan.edge_values import CONNECTORS, EXTRA
from stagemesh.plan.explain_field import FieldDoc, declaration_of, explain_field
from stagemesh.plan.make import Made
from stagemesh.plan.subject import Record
from stagemesh.plan.values import EdgePlan
from stagemesh.plan.wide_values import LAUNCH
from stagemesh.spec.frozen import frozen

FILE_ALONE: Final = frozenset({"base_config", "platforms", "stages"})
"""Keys that are about a file: what they lead to are other values."""
_GOES_TO: Final = {
    LAUNCH: "this start",
    "pipeline": "the choice of the stages",
    "session_mode": "the sessions of the pipeline",
    "duplex_session": "the sessions of the pipeline",
    CONNECTORS: "the edges that name the connector",
}
_EVERY: Final = "every stage"
_EXTRA: Final = 2
"""Parts of a path to the options of a connector, behind the first."""
_OPTION: Final = 3
"""Those of a path to one of them."""


@frozen
class WideDoc:
    """What is known about a value of the pipeline without a plan."""

    doc: FieldDoc
    """Its declarations."""
    goes_to: str
    """Who acts on it."""


def wide_doc(path: str, record: Record, made: Made, catalog: Catalog) -> WideDoc | None:
    """Return what declares a value; `None` for what only a file has, and for containers."""
    first, *rest = path.split(".")
    if first in FILE_ALONE:
        return None
    if first == EDGES:
        edge = record.edges.get(rest[0]) if rest else None
        return None if edge is None or len(rest) == 1 else _of_edge(edge, rest[1], made, catalog)
    if is_of_connector(path, record):
        return _of_connector(rest[0], rest[2:], record, made, catalog)
    written = ".".join(rest) if first == LAUNCH else path
    doc = explain_field(written, catalog, {}) if written else None
    return None if doc is None else WideDoc(doc=doc, goes_to=_GOES_TO.get(first, _EVERY))


def is_of_connector(path: str, record: Record) -> bool:
    """Whether a path is that of all options of a named connector, or of one of them."""
    first, *rest = path.split(".")
    return (
        first == CONNECTORS
        and len(rest) in (_EXTRA, _OPTION)
        and rest[1] == EXTRA
        and _class_of(rest[0], record) is not None
    )


def _class_of(name: str, record: Record) -> str | None:
    """Return the class that a connector names; `None` for one that is not there or taken back."""
    chosen = record.values(None).get(f"{CONNECTORS}.{name}.name")
    return None if chosen is None or chosen.value is None else str(chosen.value)


def _of_connector(
    name: str, option: Sequence[str], record: Record, made: Made, catalog: Catalog
) -> WideDoc | None:
    """Find who declares an option of a connector: the connector, or a model for the edges."""
    spec = catalog.connectors.get(_class_of(name, record) or "")
    assert spec is not None  # another one has no settings, and so no record
    owner, options = f"connector `{spec.name}`", hints(spec.options)
    if not option:
        listed = ", ".join(f"`{each}`" for each in options)
        doc = f"Options of that class: {listed or 'it has none'}."
        return _wide(Declared(owner=owner, kind=ConnectorEntry, name=EXTRA, doc=doc))
    if option[0] in options:
        return _wide(Declared(owner=owner, kind=spec.options, name=option[0]))
    pipeline = None if made.loaded is None else made.loaded.pipeline
    for stage in () if pipeline is None else pipeline.stages:
        if option[0] in hints(stage.edge_options):
            owner = f"stage `{stage.model_stage}`"
            found = Declared(owner=owner, kind=stage.edge_options, name=option[0])
            return _wide(found)
    return None


def _wide(found: Declared) -> WideDoc:
    return WideDoc(doc=_doc(found), goes_to=_GOES_TO[CONNECTORS])


def _doc(found: Declared) -> FieldDoc:
    return FieldDoc(
        path=CONNECTORS,
        written=(),
        is_common=True,
        kinds=(),
        flags=(),
        declarations=(declaration_of(found),),
    )


def _of_edge(edge: EdgePlan, name: str, made: Made, catalog: Catalog) -> WideDoc | None:
    """Find who declares a value of an edge: deploy files, its connector, or the producing model."""
    if name in hints(EdgeEntry):
        doc = explain_field(f"{EDGES}.{name}", catalog, {})
        assert doc is not None
        return WideDoc(doc=doc, goes_to="both stages of the edge")
    spec = next(each for each in catalog.connectors.values() if each.name == edge.connector)
    found = Declared(owner=f"connector `{spec.name}`", kind=spec.options, name=name)
    goes_to = f"connector `{spec.name}` on this edge"
    if name in edge.model_options:
        assert made.loaded is not None
        assert made.loaded.pipeline is not None
        producer = made.loaded.pipeline.stages[edge.source]
        owner = f"stage `{producer.model_stage}`"
        found = Declared(owner=owner, kind=producer.edge_options, name=name)
        goes_to = f"the model, where `{producer.model_stage}` hands over"
    elif name not in edge.options:
        return None
    return WideDoc(doc=_doc(found), goes_to=goes_to)
