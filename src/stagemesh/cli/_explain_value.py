"""Where a value of a plan comes from, for `stagemesh explain`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping

from stagemesh.cli._explain_words import flags, unknown
from stagemesh.cli._making import made_from
from stagemesh.cli._screen import columns, show_diagnostics, show_json, show_text
from stagemesh.config.catalog import Catalog
from stagemesh.config.plain import plain_fields
from stagemesh.config.tree import quoted
from stagemesh.plan.explain_absent import instead_of, is_undecided
from stagemesh.plan.explain_field import explain_field, field_text
from stagemesh.plan.explain_planned import explain_planned
from stagemesh.plan.explain_value import NO_PLAN, explain_value, members_of, story_text
from stagemesh.plan.make import Made
from stagemesh.plan.render import value_line
from stagemesh.plan.subject import Record, Subject, record_of, subject_of
from stagemesh.plan.table import table
from stagemesh.plan.values import ValuePlan


def value(namespace: argparse.Namespace) -> int:
    """Explain a value of MODEL's plan, also where that does not stand yet: it leaves 1 then."""
    catalog = Catalog.installed()
    made = made_from(namespace, catalog, anywhere=True)
    code = 0 if made.plan is not None else 1
    record = record_of(made)
    if record is None:
        show_diagnostics(made.diagnostics, made.documents, as_json=namespace.json)
        if not namespace.json:
            _show_field(namespace.what, catalog)
        return code
    subject = subject_of(namespace.what, record, catalog)
    members = members_of(subject, record, made)
    story = None
    if subject.path:
        story = explain_value(subject, record, made, catalog)
        story = story or explain_planned(subject, record, made)
    if story is None and not members:
        _show_absent(namespace, subject, record, made, catalog)
        return 1
    show_diagnostics(made.diagnostics, made.documents)
    if story is None or members:
        _show_members(members, record, as_json=namespace.json)
    elif namespace.json:
        show_json({"value": plain_fields(story)})
    else:
        sys.stdout.write(story_text(story, columns(sys.stdout)))
        tells = f"`stagemesh explain {story.topic}` says what it is"
        shows = f"`stagemesh plan {shlex.quote(namespace.model)} --json` shows it in the whole plan"
        show_text(f"\nnext: {tells if story.topic else shows}")
    return code


def _show_absent(
    namespace: argparse.Namespace, subject: Subject, record: Record, made: Made, catalog: Catalog
) -> None:
    """Say that there is no such value, or that only a plan that does not stand yet would tell."""
    what, found = quoted(namespace.what, 60), made.diagnostics
    is_open = is_undecided(subject, record, catalog)
    if not is_open:
        help_text = instead_of(namespace.what, record, catalog)
        found = (*found, *unknown(f"{what} is no value of this plan", help_text).diagnostics)
    show_diagnostics(found, made.documents, as_json=namespace.json)
    if is_open and not namespace.json:
        show_text(f"{NO_PLAN}, and {what} is known once there is one")
        _show_field(namespace.what, catalog)


def _show_field(path: str, catalog: Catalog) -> None:
    """Show what a field is and what it is by default, where there is no value of it to show."""
    doc = explain_field(path, catalog, flags())
    if doc is not None:
        sys.stdout.write("\n" + field_text(doc, columns(sys.stdout)))


def _show_members(members: Mapping[str, ValuePlan], record: Record, *, as_json: bool) -> None:
    """Show every value of a stage, of a mapping or of all stages on a line of its own."""
    if as_json:
        values = [{"path": path, **plain_fields(value)} for path, value in members.items()]
        show_json({"values": values})
        return
    held = record.held_as_shown
    rows = [value_line(path, value, held.get(path)) for path, value in members.items()]
    sys.stdout.write("\n".join([*table(rows, columns(sys.stdout)), ""]))
    if not record.is_planned:
        show_text(f"\n{NO_PLAN}: these are the values that were given")
    first = next(iter(members))
    show_text(f"\nnext: `stagemesh explain {first}` with the same arguments tells more")
