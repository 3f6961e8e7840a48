"""What an axis and a field of a file mean, for `stagemesh explain`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Final

from stagemesh.cli._listing import show_kind
from stagemesh.cli._screen import columns, show_json, show_text
from stagemesh.config.catalog import Catalog
from stagemesh.config.flag_table import load_flags
from stagemesh.config.plain import plain_fields
from stagemesh.config.tree import quoted
from stagemesh.errors import DiagnosticError
from stagemesh.plan.explain_axis import axis_text, explain_axis
from stagemesh.plan.explain_field import FieldDoc, explain_field, field_names, field_text
from stagemesh.plan.pages import codes
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean, nearest

_OF_A_PLAN: Final = "a stage, or a value such as `thinker.tp`, is explained with MODEL behind it"


def axis(namespace: argparse.Namespace) -> int:
    """Explain the axis whose name stands behind `axis`; list all where none does."""
    if namespace.model is None:
        show_kind("axes", "`stagemesh explain axis NAME` tells all of one", as_json=namespace.json)
        return 0
    name, catalog = namespace.model, Catalog.installed()
    if name not in catalog.axes:
        raise unknown(f"no axis is called {quoted(name)}", did_you_mean(name, catalog.axes))
    doc = explain_axis(catalog.axes[name], catalog, flags())
    if namespace.json:
        show_json({"axis": plain_fields(doc)})
    else:
        sys.stdout.write(axis_text(doc, columns(sys.stdout)))
        show_text(f"\nnext: `stagemesh explain STAGE.{name} MODEL` says where its size comes from")
    return 0


def field(namespace: argparse.Namespace) -> int:
    """Explain a field of deploy or strategy files."""
    path, catalog = namespace.what, Catalog.installed()
    doc = explain_field(path, catalog, flags())
    if doc is None:
        name, known = path.rpartition(".")[2], [*field_names(catalog), *codes(), "axis"]
        meant = _OF_A_PLAN if nearest(name, known) is None else did_you_mean(name, known)
        raise unknown(f"{quoted(path)} is no code and no field", meant)
    if namespace.json:
        show_json({"field": plain_fields(doc)})
        return 0
    sys.stdout.write(field_text(doc, columns(sys.stdout)))
    show_text(f"\nnext: {_next(path, doc)}")
    return 0


def _next(path: str, doc: FieldDoc) -> str:
    if not doc.is_common and not doc.kinds:
        return "`stagemesh plan --help-all` lists every flag"
    is_placed = doc.is_common or path != doc.path
    where = path if is_placed else f"STAGE.{path}"
    return f"`stagemesh explain {where} MODEL` says what holds and why"


def flags() -> Mapping[str, tuple[str, ...]]:
    """Flags by the fields that they give."""
    return {flag.field: (*flag.spellings, *flag.negative) for flag in load_flags()}


def unknown(message: str, help_text: str) -> DiagnosticError:
    """Say that nothing of a name can be explained, and what was meant."""
    return DiagnosticError([Diagnostic(code="CL021", message=message, help=help_text)])
