"""The work of `stagemesh plan`."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Final

from stagemesh.cli._arguments import inputs_from
from stagemesh.cli._screen import (
    check_not_read,
    columns,
    show_diagnostics,
    show_text,
    write_text,
)
from stagemesh.config.catalog import Catalog
from stagemesh.config.deploy import BASE
from stagemesh.config.host import read_host
from stagemesh.errors import DiagnosticError
from stagemesh.plan.make import make
from stagemesh.plan.render import plan_text
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

_IDLE_TOP: Final = Diagnostic(
    code="CL015",
    message="`--fit-top` does nothing without `--fit`",
    origin=Origin(layer=Layer.GLOBAL, source="--fit-top"),
    help="`--fit DEVICES` proposes layouts, of which it counts the best; else leave it out",
)


def run(namespace: argparse.Namespace) -> int:
    """Plan, save and print; a valid plan is a success even if it cannot be run yet."""
    if namespace.fit is not None:
        from stagemesh.cli._fit import run_fit  # noqa: PLC0415  only when asked for

        return run_fit(namespace, inputs_from(namespace), read_host())
    if namespace.fit_top is not None:
        raise DiagnosticError([_IDLE_TOP])
    made = make(inputs_from(namespace), read_host())
    as_json = namespace.json and made.plan is None
    show_diagnostics(made.diagnostics, made.documents, as_json=as_json)
    if made.plan is None:
        return 1
    is_data = namespace.json or (namespace.form is not None and namespace.output is None)
    data = _data(made.plan, namespace.form) if is_data or namespace.output is not None else ""
    if namespace.output is not None:
        checkpoint = made.plan.checkpoint.path
        check_not_read(namespace.output, made.documents, checkpoint, "--output")
        write_text(namespace.output, data, "--output")
    if is_data:
        sys.stdout.write(data)
        return 0
    width = columns(sys.stdout)
    sys.stdout.write(f"{plan_text(made.plan, width)}\n")
    if made.loaded is not None and made.loaded.replaced is not None:
        name = made.loaded.replaced
        show_text(
            f"left out: all values of the model's own deploy file; `{BASE}: {name}` in yours keeps"
            " them\n"
        )
    if namespace.values:
        from stagemesh.plan.details import details_text  # noqa: PLC0415  only when typed

        sys.stdout.write(details_text(made.plan, width))
    show_text(_next(made.plan, namespace.output, namespace.form))
    return 0


def _data(plan: Plan, name: str | None) -> str:
    """Write the plan as data: in its own form, or in the words of another system."""
    if name is None:
        return to_json(plan)
    from stagemesh.plan.export.formats import FORMATS  # noqa: PLC0415  only when typed

    return FORMATS[name].write(plan, Catalog.installed())


def _next(plan: Plan, saved: str | None, name: str | None) -> str:
    """The next useful command."""
    if saved is not None and name is not None:
        return f"wrote `{saved}` as {name}; next: `-o plan.json` saves the plan itself"
    done = "" if saved is None else f"saved to `{saved}`; "
    if plan.not_runnable:
        return f"{done}next: `stagemesh list engines` shows what can be run"
    if saved is not None:
        return f'{done}next: `stagemesh run {shlex.quote(saved)} "..."` runs exactly this'
    return 'next: `-o plan.json` saves it, then `stagemesh run plan.json "..."` runs exactly this'
