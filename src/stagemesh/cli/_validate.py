"""The work of `stagemesh validate`. Exit codes: 0 all valid, 1 a file is not, 2 wrong usage."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stagemesh.cli._screen import columns, show_diagnostics, show_json, show_text
from stagemesh.config.catalog import Catalog
from stagemesh.config.validate import CheckedFile, FileKind, check_files
from stagemesh.plan.diagnostics import diagnostic_data, diagnostics_github
from stagemesh.plan.table import table
from stagemesh.plan.words import plural
from stagemesh.spec.diagnostic import Diagnostic

_WRONG_USAGE: Final = 2
_KINDS: Final[Mapping[FileKind, str]] = {
    FileKind.DEPLOY: "deploy file",
    FileKind.STRATEGY: "strategy file",
    FileKind.PLAN: "saved plan",
}
_JSON, _GITHUB = "json", "github"


def run(namespace: argparse.Namespace) -> int:
    """Check every file; all mistakes of all of them are told."""
    form = _JSON if namespace.json else namespace.format
    catalog = Catalog.installed()
    pipeline: str | None = namespace.pipeline
    problems: tuple[Diagnostic, ...] = ()
    if namespace.model is not None:
        pipeline, problems = _pipeline_of(namespace.model, catalog)
    checked = check_files(namespace.files, pipeline, catalog)
    problems += checked.problems
    if any(problem.is_error for problem in problems):
        show_diagnostics(problems, as_json=form == _JSON)
        return _WRONG_USAGE
    files = tuple(_planned(file, catalog) for file in checked.files)
    found = tuple(dict.fromkeys(each for file in files for each in file.diagnostics))
    if form == _JSON:
        show_json({"valid": all(map(_is_valid, files)), "files": list(map(_data, files))})
    elif form == _GITHUB:
        sys.stdout.write(diagnostics_github(found))
    else:
        show_diagnostics(found, [document for file in files for document in file.documents])
        _show(files, pipeline)
    return 0 if all(map(_is_valid, files)) else 1


def _pipeline_of(model: str, catalog: Catalog) -> tuple[str | None, tuple[Diagnostic, ...]]:
    from stagemesh.config.inputs import PlanInputs  # noqa: PLC0415  only when typed
    from stagemesh.config.load import load  # noqa: PLC0415  only when typed

    loaded = load(PlanInputs(model=model, argument="--model"), catalog)
    if loaded.pipeline is None:
        return None, loaded.diagnostics
    return loaded.pipeline.model_type, ()


def _planned(file: CheckedFile, catalog: Catalog) -> CheckedFile:
    """Ask the planner what it has against a file."""
    if file.kind is FileKind.PLAN:
        return _with_plan(file, catalog)
    if not file.merged:
        return file
    from stagemesh.plan.file_findings import file_findings  # noqa: PLC0415  only of sound files

    found = (
        each
        for whole in file.merged
        for each in file_findings(whole.pipeline, whole.settings, catalog)
    )
    return replace(file, diagnostics=tuple(dict.fromkeys((*file.diagnostics, *found))))


def _with_plan(file: CheckedFile, catalog: Catalog) -> CheckedFile:
    """A saved plan is planned again, as before it runs; this machine does not matter."""
    from stagemesh.plan.saved import open_saved  # noqa: PLC0415  planning costs more than checking

    made = open_saved(file.opened or Path(file.path), None, catalog)
    if made.plan is None:
        return replace(file, diagnostics=made.diagnostics)
    return replace(
        file,
        pipeline=made.plan.pipeline,
        not_runnable=made.plan.not_runnable,
        diagnostics=made.diagnostics,
    )


def _is_valid(file: CheckedFile) -> bool:
    return not any(found.is_error for found in file.diagnostics)


def _data(file: CheckedFile) -> dict[str, object]:
    return {
        "path": file.path,
        "kind": None if file.kind is None else file.kind.value,
        "pipeline": file.pipeline,
        "valid": _is_valid(file),
        "diagnostics": [diagnostic_data(found) for found in file.diagnostics],
    }


def _show(files: Sequence[CheckedFile], pipeline: str | None) -> None:
    """A line for every file, and how many are valid."""
    sys.stdout.write("\n".join([*table(list(_rows(files)), columns(sys.stdout)), ""]))
    valid = sum(map(_is_valid, files))
    show_text(f"\n{plural(len(files), 'file')}: {valid} valid, {len(files) - valid} invalid")
    if valid < len(files):
        return  # how to read on is told with what was found
    show_text(f"next: {_next(files, pipeline)}")


def _next(files: Sequence[CheckedFile], pipeline: str | None) -> str:
    """Say what to do with valid files; a plan has been decided and is run, or tells why not."""
    if pipeline is None and any(file.pipeline is None for file in files):
        return "`--pipeline NAME` checks stages, axes and edges too, not only the form"
    if any(file.kind is not FileKind.PLAN for file in files):
        return "`stagemesh plan MODEL` checks what the model, devices and flags decide"
    runnable = [file for file in files if not file.not_runnable]
    if not runnable:
        return f'`stagemesh run {shlex.quote(files[0].path)} "..."` says why it cannot run yet'
    return f'`stagemesh run {shlex.quote(runnable[0].path)} "..."` runs exactly that plan'


def _rows(files: Sequence[CheckedFile]) -> Iterator[tuple[str, str]]:
    for file in files:
        what = "cannot be read" if file.kind is None else _KINDS[file.kind]
        against = "" if file.pipeline is None else f" for {file.pipeline}"
        state = "valid" if _is_valid(file) else "invalid"
        yield f"{state.ljust(7)}  {file.path}", f"{what}{against}"
