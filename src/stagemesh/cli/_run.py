"""The work of `stagemesh run`: all is checked before anything starts, and stopped at the end."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stagemesh.cli._making import made_from
from stagemesh.cli._progress import Progress, report_text
from stagemesh.cli._screen import (
    check_writable,
    columns,
    show_diagnostics,
    show_json,
    show_text,
)
from stagemesh.errors import DiagnosticError
from stagemesh.plan.render import plan_summary
from stagemesh.plan.table import printable
from stagemesh.plan.values import Plan
from stagemesh.runtime.checks import check_one_request, check_prompt, check_runnable, check_timeout
from stagemesh.runtime.omni import Omni
from stagemesh.runtime.outputs import OmniResult
from stagemesh.runtime.timeline import Timeline
from stagemesh.runtime.transport.token import idle_permission
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

_AUDIO = "audio"


def run(namespace: argparse.Namespace) -> int:
    """Ask one question; print the answer on standard output and all else on standard error."""
    made = made_from(namespace)
    show_diagnostics(made.diagnostics, made.documents, as_json=namespace.json and made.plan is None)
    if made.plan is None:
        return 1
    _check_request(namespace, made.plan)
    show_diagnostics(idle_permission(made.plan.launch), ())
    result = _ask(namespace, made.plan)
    _print(namespace, result)
    if namespace.output is not None:
        _write_audio(result, namespace.output)
    return 0


def _check_request(namespace: argparse.Namespace, plan: Plan) -> None:
    """Find what is wrong with the request before anything is started."""
    found = check_runnable(plan) + check_one_request(plan) + check_prompt(namespace.question)
    found += check_timeout(namespace.timeout, Origin(layer=Layer.GLOBAL, source="--timeout"))
    if namespace.trace is not None:
        found += check_writable(namespace.trace, "--trace")
    if namespace.output is not None:
        found += check_writable(namespace.output, "--output")
        if all(stage.final_output_type != _AUDIO for stage in plan.stages):
            found.append(
                Diagnostic(
                    code="CL005",
                    message=f"no stage of `{plan.pipeline}` puts out audio for `--output`",
                    origin=Origin(layer=Layer.GLOBAL, source="--output"),
                )
            )
    if found:
        raise DiagnosticError(found)


def _ask(namespace: argparse.Namespace, plan: Plan) -> OmniResult:
    sys.stderr.write(f"{plan_summary(plan, columns(sys.stderr))}\n")
    timeline = Timeline()
    try:
        with Progress(plan) as progress, Omni(plan) as omni:
            if namespace.trace is not None:
                omni.observers.add(timeline)
            progress.started()
            [result] = omni.generate(
                namespace.question, timeout_s=namespace.timeout, on_progress=progress.news
            )
    finally:
        if namespace.trace is not None:
            _write_trace(timeline, namespace.trace)
    return result


def _write_trace(timeline: Timeline, path: str) -> None:
    """Write the timeline, of a request that has failed as well."""
    try:
        timeline.write(Path(path))
    except OSError as error:
        raise _unwritable(path, error) from error
    sys.stderr.write(f"wrote the timeline to {printable(path)}\n")


def _write_audio(result: OmniResult, path: str) -> None:
    if result.audio is None:
        raise DiagnosticError(
            [
                Diagnostic(
                    code="RT005",
                    message="the answer has nothing to speak, so no file was written",
                    origin=Origin(layer=Layer.GLOBAL, source="--output"),
                )
            ]
        )
    try:
        result.audio.write(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    sys.stderr.write(f"wrote {result.audio.seconds:.1f} s of audio to {printable(path)}\n")


def _unwritable(path: str, error: OSError) -> DiagnosticError:
    message = f"`{path}` cannot be written: {(error.strerror or str(error)).lower()}"
    return DiagnosticError([Diagnostic(code="CL001", message=message)])


def _print(namespace: argparse.Namespace, result: OmniResult) -> None:
    if namespace.json:
        show_json(_as_json(namespace, result))
        return
    if result.text is not None:
        # a screen breaks lines anywhere; what goes elsewhere stays as it is
        show = show_text if sys.stdout.isatty() else sys.stdout.write
        show(f"{result.text.strip()}\n")
    sys.stdout.flush()
    sys.stderr.write(report_text(result, columns(sys.stderr)))


def _as_json(namespace: argparse.Namespace, result: OmniResult) -> dict[str, object]:
    audio = result.audio
    return {
        "text": result.text,
        "audio": None
        if audio is None
        else {
            "file": namespace.output,
            "seconds": audio.seconds,
            "sampling_rate": audio.sampling_rate,
        },
        "seconds": result.seconds,
        "first_output_s": dict(result.first_output_s),
        "stages": [
            {
                "stage": stage.stage,
                "replicas": list(stage.replicas),
                "requests": stage.num_requests,
                "seconds": stage.seconds,
                "first_output_s": stage.first_output_s,
                "units": dict(stage.units),
            }
            for stage in result.report
        ],
    }
