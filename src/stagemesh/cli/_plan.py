"""The work of `stagemesh plan`."""

from __future__ import annotations

import argparse
import sys

from stagemesh.cli._arguments import inputs_from
from stagemesh.cli._screen import show_diagnostics, write_text
from stagemesh.config.host import read_host
from stagemesh.plan.make import make
from stagemesh.plan.render import plan_text
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan


def run(namespace: argparse.Namespace) -> int:
    """Plan, save and print; a valid plan is a success even if it cannot be run yet."""
    if namespace.fit is not None:
        from stagemesh.cli._fit import run_fit  # noqa: PLC0415  only when asked for

        return run_fit(namespace, inputs_from(namespace), read_host())
    made = make(inputs_from(namespace), read_host())
    if made.plan is None:
        show_diagnostics(made.diagnostics, made.documents, as_json=namespace.json)
        return 1
    show_diagnostics(made.diagnostics, made.documents)
    if namespace.output is not None:
        write_text(namespace.output, to_json(made.plan), "--output")
    if namespace.json:
        sys.stdout.write(to_json(made.plan))
    else:
        sys.stdout.write(f"{plan_text(made.plan)}\n{_next(made.plan, namespace.output)}\n")
    return 0


def _next(plan: Plan, saved: str | None) -> str:
    """The next useful command."""
    if plan.not_runnable:
        return (
            "next: `stagemesh list engines` shows what can be run; `--json` prints the whole plan"
        )
    if saved is not None:
        return f'saved to `{saved}`; next: `stagemesh run {saved} "..."` runs exactly this'
    return 'next: `-o plan.json` saves it, then `stagemesh run plan.json "..."` runs exactly this'
