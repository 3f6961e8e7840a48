"""The work of `stagemesh doctor`: every check on a line, the fix below it, nothing imported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from stagemesh.cli._checkup import Check, State
from stagemesh.cli._checkup_machine import machine_checks
from stagemesh.cli._checkup_software import software_checks
from stagemesh.cli._screen import columns, show_json, show_text
from stagemesh.config.plain import plain_fields
from stagemesh.plan.table import table
from stagemesh.plan.words import plural


def run(namespace: argparse.Namespace) -> int:
    """Run every check; failures leave 1, and warnings too where that is asked for."""
    checks = [*software_checks(), *machine_checks()]
    counts = {state: sum(check.state is state for check in checks) for state in State}
    if namespace.json:
        listed = [plain_fields(check) for check in checks]
        show_json({"checks": listed, "counts": {s.value: n for s, n in counts.items()}})
    else:
        sys.stdout.write("\n".join([*_lines(checks, columns(sys.stdout)), ""]))
        told = f"{counts[State.OK]} ok, {plural(counts[State.WARNING], 'warning')}"
        show_text(f"\n{told}, {plural(counts[State.FAILURE], 'failure')}")
        show_text("next: `stagemesh doctor --json` is made for reports of problems")
    bad = counts[State.FAILURE] + (counts[State.WARNING] if namespace.strict else 0)
    return 1 if bad else 0


def _lines(checks: Sequence[Check], width: int | None) -> list[str]:
    rows = []
    for check in checks:
        name = f"{check.state.value.ljust(7)}  {check.name}"
        rows.append((name, check.message))
        if check.help is not None:
            rows.append((name, f"fix: {check.help}"))
    return list(table(rows, width))
