"""The work of `stagemesh diff`. Exit codes are those of `diff`: 0 same, 1 different, 2 trouble."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from stagemesh.cli._arguments import inputs_from, layout_flags
from stagemesh.cli._screen import columns, show_diagnostics, show_json, show_text
from stagemesh.config.document import Document, Findings, Source
from stagemesh.config.host import read_host
from stagemesh.config.inputs import PlanInputs, opened_once
from stagemesh.config.lookup import read_file
from stagemesh.config.opened import OpenedFile, open_file
from stagemesh.config.validate import FileKind, kind_of
from stagemesh.errors import DiagnosticError
from stagemesh.plan.diff import Difference, differences, differences_text
from stagemesh.plan.diff_files import file_differences
from stagemesh.plan.make import make
from stagemesh.plan.saved import read_plan
from stagemesh.plan.values import Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.unset import UNSET


@frozen
class _Side:
    """One of the two that are compared."""

    read: Plan | Document | None
    """A plan or a file; `None` when that could not be had."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What was found on the way."""
    documents: tuple[Document, ...] = ()
    """What was read."""
    is_planned: bool = False
    """Whether the plan was made here, with what was given for both."""


def run(namespace: argparse.Namespace) -> int:
    """Compare two plans or files; trouble with either is told and leaves 2."""
    compared = (namespace.before, namespace.after)
    files = {name: open_file(name) for name in dict.fromkeys(compared)}
    inputs = None if namespace.model is None else _common(namespace)
    sides = [_side(files[name], inputs) for name in compared]
    has_failed = any(side.read is None for side in sides)
    show_diagnostics(
        list(dict.fromkeys(found for side in sides for found in side.diagnostics)),
        [document for side in sides for document in side.documents],
        as_json=namespace.json and has_failed,
    )
    if has_failed:
        return int(namespace.failure)
    _refuse_idle(namespace, sides)
    found = _compare(sides[0].read, sides[1].read, namespace)
    if namespace.json:
        names = {"before": namespace.before, "after": namespace.after}
        show_json({**names, "same": not found, "differences": [each.data for each in found]})
        return 1 if found else 0
    sys.stdout.write(differences_text(found, compared, columns(sys.stdout)))
    if isinstance(sides[0].read, Document):
        show_text("\nnext: `--model MODEL` plans both, and shows what follows from them")
    else:
        show_text("\nnext: `stagemesh explain STAGE.FIELD MODEL` says where a value comes from")
    return 1 if found else 0


def _refuse_idle(namespace: argparse.Namespace, sides: Sequence[_Side]) -> None:
    """Refuse flags when neither side was planned with them: both would seem to follow them."""
    flags = layout_flags(namespace)
    if all(isinstance(side.read, Plan) and not side.is_planned for side in sides):
        flags += [] if namespace.model is None else ["--model"]
        idle = [
            Diagnostic(
                code="CL002",
                message=f"`{flag}` cannot change saved plans",
                origin=Origin(layer=Layer.GLOBAL, source=flag),
                help="leave it out, or name a file in place of a plan",
            )
            for flag in flags
        ]
    elif namespace.model is None:
        idle = [
            Diagnostic(
                code="CL015",
                message=f"`{flag}` does nothing without `--model`: files are compared as written",
                origin=Origin(layer=Layer.GLOBAL, source=flag),
                help="`--model MODEL` plans the files with it; else leave it out",
            )
            for flag in flags
        ]
    else:
        return
    if idle:
        raise DiagnosticError(idle)


def _common(namespace: argparse.Namespace) -> PlanInputs:
    """What both sides are planned with; its files are read once for both."""
    return replace(opened_once(inputs_from(namespace)), argument="--model")


def _side(file: OpenedFile, inputs: PlanInputs | None) -> _Side:
    """Read one side, and plan it where a model is given."""
    if file.begins_like_a_plan:
        return _saved(file)
    findings: Findings = []
    document = read_file(file, Source(name=file.name, layer=Layer.DEPLOY), findings)
    if findings or document is None:
        documents = () if document is None else (document,)
        return _Side(read=None, diagnostics=tuple(findings), documents=documents)
    if kind_of((document,)) is FileKind.PLAN:
        return _saved(file)
    return _Side(read=document) if inputs is None else _planned(file, document, inputs)


def _saved(file: OpenedFile) -> _Side:
    """Read a saved plan, wherever it was made."""
    plan = read_plan(file)
    return _Side(read=plan) if isinstance(plan, Plan) else _Side(read=None, diagnostics=plan)


def _planned(file: OpenedFile, document: Document, inputs: PlanInputs) -> _Side:
    """Plan with a file as its deploy or strategy file, and all that is given for both sides."""
    if kind_of((document,)) is FileKind.STRATEGY:
        flag, common = "--strategy-config", inputs.strategy_config
        planned = replace(inputs, strategy_config=file)
    else:
        flag, common = "--deploy-config", inputs.deploy_config
        planned = replace(inputs, deploy_config=file)
    if common is not UNSET:
        raise _refused(f"`{file}` and `{flag}` are files of one kind", f"leave `{flag}` out")
    made = make(planned, read_host())
    return _Side(
        read=made.plan,
        diagnostics=made.diagnostics,
        documents=made.documents,
        is_planned=True,
    )


def _compare(
    before: Plan | Document | None, after: Plan | Document | None, namespace: argparse.Namespace
) -> tuple[Difference, ...]:
    if isinstance(before, Plan) and isinstance(after, Plan):
        return differences(before, after)
    if isinstance(before, Document) and isinstance(after, Document) and _is_alike(before, after):
        return file_differences(before, after)
    message = f"`{namespace.before}` and `{namespace.after}` are of different kinds"
    raise _refused(message, "`--model MODEL` plans files, so that they can be compared with others")


def _is_alike(before: Document, after: Document) -> bool:
    """Whether both are deploy files, or both are strategy files."""
    return kind_of((before,)) is kind_of((after,))


def _refused(message: str, help_text: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic(code="CL022", message=message, help=help_text)])
