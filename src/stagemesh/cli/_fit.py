"""The work of `stagemesh plan --fit`."""

from __future__ import annotations

import argparse
import shlex
import sys

from stagemesh.cli._fit_arguments import DEFAULT_TOP
from stagemesh.cli._screen import (
    check_not_read,
    columns,
    show_diagnostics,
    show_json,
    show_text,
    write_text,
)
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.errors import DiagnosticError
from stagemesh.plan.fit.propose import FitRequest, Fitted, fit, strategy_text
from stagemesh.plan.fit.render import fit_data, fit_text, speed_text
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin


def run_fit(namespace: argparse.Namespace, inputs: PlanInputs, host: Host) -> int:
    """Propose layouts, print them, and write the strategy file of the first where asked."""
    given = {"--as": namespace.form is not None, "--values": namespace.values}
    others = [flag for flag, is_given in given.items() if is_given]
    if others:
        raise DiagnosticError([_two_answers(flag) for flag in others])
    best = DEFAULT_TOP if namespace.fit_top is None else namespace.fit_top
    asked = FitRequest(inputs=inputs, devices=namespace.fit, best=best)
    fitted = fit(asked, host)
    failed = not fitted.proposals
    as_json = namespace.json and failed
    show_diagnostics(fitted.diagnostics, fitted.documents, as_json=as_json)
    if failed:
        return 1
    flags = f"--devices {asked.devices}"
    if namespace.output is not None:
        checkpoint = fitted.proposals[0].plan.checkpoint.path
        check_not_read(namespace.output, fitted.documents, checkpoint, "--output")
        comment = (*_headline(fitted, asked), f"Plan it with `{flags}`.")
        write_text(namespace.output, strategy_text(fitted.proposals[0], comment), "--output")
    if namespace.json:
        show_json(fit_data(fitted))
    else:
        sys.stdout.write(f"{fit_text(fitted, columns(sys.stdout))}\n")
        show_text(_next(namespace.output, flags))
    return 0


def _two_answers(flag: str) -> Diagnostic:
    return Diagnostic(
        code="CL013",
        message=f"`--fit` proposes layouts, and `{flag}` is about one plan",
        origin=Origin(layer=Layer.GLOBAL, source=flag),
        help=f"write the strategy file with `-o`, then plan with it and `{flag}`",
    )


def _headline(fitted: Fitted, asked: FitRequest) -> tuple[str, ...]:
    plan, best = fitted.proposals[0].plan, fitted.proposals[0]
    return (
        f"The best layout of `{plan.pipeline}` that `--fit {asked.devices}` found:",
        f"{speed_text(best)}.",
    )


def _next(saved: str | None, flags: str) -> str:
    """The next useful command."""
    if saved is None:
        return "next: `-o strategy.yaml` writes the first as a strategy file"
    flags = f"{flags} --strategy-config {shlex.quote(saved)}"
    return f"wrote `{saved}`; next: `{flags}` in place of `--fit` plans exactly that"
