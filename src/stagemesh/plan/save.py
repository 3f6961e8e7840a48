"""A plan as a file and back: exactly the same values, or diagnostics about its form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from stagemesh.config.check import check
from stagemesh.config.document import Findings, Source, read_json
from stagemesh.config.place import Place
from stagemesh.config.plain import plain_fields
from stagemesh.config.tree import quoted
from stagemesh.plan.values import PLAN_VERSION, Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

_JSON: Final = ("{", "[", '"')
"""How JSON begins, other than with a word or a number."""


def to_json(plan: Plan) -> str:
    """Write a plan as JSON text with a newline at its end; equal plans give equal text."""
    return json.dumps(plain_fields(plan), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, source: str = "plan.json") -> Plan | tuple[Diagnostic, ...]:
    """Read what `to_json` wrote; `source` is how messages call it."""
    findings: Findings = []
    named = Source(name=source, layer=Layer.GLOBAL, expected="a plan")
    if not text.lstrip().startswith(_JSON):  # such as a YAML file, which is meant for elsewhere
        return (_no_plan("it is no JSON", Origin(layer=Layer.GLOBAL, source=source)),)
    document = read_json(text, named, findings, max_bytes=None)
    if document is None:
        return tuple(findings)
    if findings:
        return tuple(findings)
    place = Place(located=document)
    version = document.value.get("version")
    if version != PLAN_VERSION or isinstance(version, bool):
        return (_wrong_version(document.value, place.origin),)
    checked = check(Plan, document.value, place)
    return checked.diagnostics or _plan(checked.value)


def _plan(value: object) -> Plan:
    assert isinstance(value, Plan)
    return value


def _no_plan(why: str, origin: Origin) -> Diagnostic:
    return Diagnostic(
        code="PL040",
        message=f"this is no saved plan: {why}",
        origin=origin,
        help="`stagemesh plan MODEL -o plan.json` writes one; `--deploy-config` takes other files",
    )


def _version_text(version: object) -> str:
    text = quoted(version)
    return f"{text} as text" if isinstance(version, str) else text


def _wrong_version(value: Mapping[str | int, object], origin: Origin) -> Diagnostic:
    if "version" not in value:
        return _no_plan("it has no `version`", origin)
    return Diagnostic(
        code="PL041",
        message=f"the plan has version {_version_text(value['version'])},"
        f" and only `{PLAN_VERSION}` can be read",
        origin=origin,
        help="plan again with `stagemesh plan MODEL -o plan.json`",
    )
