"""JSON Schemas of strategy and deploy files, for editors: generated from the same annotations.

Run as `python -m stagemesh.config.jsonschema`, it writes `schemas/*.schema.json` below the current
folder; with `--check` it only compares, and exits with 1 when a file is out of date.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, Union

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import Annotation, Forbidden, Pattern, hints
from stagemesh.config.docs import field_docs
from stagemesh.config.fields import StageField, stage_fields
from stagemesh.config.schema import (
    EDGE_ENDS,
    PLATFORMS,
    STAGE_KEY,
    DeployFile,
    EdgeEntry,
    PlatformSection,
    StageEntry,
    StrategyEntry,
    StrategyFile,
)
from stagemesh.spec.axis import Axis
from stagemesh.spec.bounds import Range

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_STAGE: Final = "stage"
_SECTION: Final = "section"
"""Names of the definitions that several parts of the deploy schema share."""
_SCALARS: Final[Mapping[Annotation, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def deploy_schema(catalog: Catalog) -> Schema:
    """Return the schema of deploy files for what is in `catalog`.

    A file may lie on another and say only a part, so every value may be `null` and hardly any is
    required.
    """
    fields, docs = stage_fields(catalog), field_docs(DeployFile)
    stage_id = {"type": "integer", "minimum": 0, "description": field_docs(StageEntry)[STAGE_KEY]}
    entry = {
        "type": "object",
        "required": [STAGE_KEY],
        "additionalProperties": False,
        "properties": {
            STAGE_KEY: stage_id,
            **{name: _nullable(_stage_field(fields[name])) for name in sorted(fields)},
        },
    }
    stages = {"type": ["array", "null"], "items": {"$ref": f"#/$defs/{_STAGE}"}}
    section = schema_of(PlatformSection, partial=True)
    section["properties"]["stages"] |= stages
    platforms = {name: {"$ref": f"#/$defs/{_SECTION}"} for name in PLATFORMS}
    schema = schema_of(DeployFile, partial=True)
    properties: Schema = schema["properties"]
    properties["stages"] |= stages
    properties["edges"] |= {"items": _edge()}
    properties["platforms"] = {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": platforms,
        "description": docs["platforms"],
    }
    for name in sorted(fields):
        if fields[name].pipeline_wide:
            text = f"{_stage_field(fields[name])['description']} For every stage that has it."
            reference = f"#/$defs/{_STAGE}/properties/{name}"
            properties[name] = {"$ref": reference, "description": text}
    definitions = {_STAGE: entry, _SECTION: _nullable(section)}
    return {"$schema": _DIALECT, "title": "stagemesh deploy file", **schema, "$defs": definitions}


def _edge() -> Schema:
    schema = schema_of(EdgeEntry)
    ends = {
        name: {"type": ["integer", "string"], "description": text}
        for name, text in EDGE_ENDS.items()
    }
    return schema | {"required": [*ends], "properties": ends | schema["properties"]}


def strategy_schema(catalog: Catalog) -> Schema:
    """Return the schema of strategy files for what is in `catalog`."""
    stack = {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["axis"],
            "oneOf": [_axis_entry(axis) for _, axis in sorted(catalog.axes.items())],
        },
    }
    return {
        "$schema": _DIALECT,
        "title": "stagemesh strategy file",
        "type": "object",
        "required": ["strategies"],
        "additionalProperties": False,
        "properties": {
            "strategies": {
                "type": "object",
                "additionalProperties": stack,
                "description": field_docs(StrategyFile)["strategies"],
            }
        },
    }


SCHEMAS: Final[Mapping[str, Callable[[Catalog], Schema]]] = {
    "deploy": deploy_schema,
    "strategy": strategy_schema,
}
"""What makes the schema of each kind of file."""


def schema_text(name: str, catalog: Catalog) -> str:
    """Return the schema of a kind of file as the text that is committed."""
    return json.dumps(SCHEMAS[name](catalog), indent=2, ensure_ascii=False) + "\n"


def schema_of(annotation: Annotation, *, partial: bool = False) -> Schema:
    """Return the schema of the values that an annotation takes.

    With `partial`, of what one of several layers says: nothing is required and `null` clears.
    """
    origin: Annotation = typing.get_origin(annotation)
    if origin is not None:
        return _generic(origin, typing.get_args(annotation), partial=partial)
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"enum": [member.value for member in annotation]}
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _dataclass(annotation, partial=partial)
    return {}


def _generic(origin: Annotation, args: Sequence[Annotation], *, partial: bool) -> Schema:
    if origin is Annotated:
        return schema_of(args[0], partial=partial) | _constraints(args[1:])
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(arg, partial=partial) for arg in args]}
    if origin in (dict, Mapping):
        names = {"propertyNames": schema_of(args[0])} if args[0] is not str else {}
        member = schema_of(args[1], partial=partial)
        members = _nullable(member) if partial and member else member
        return {"type": "object", **names, "additionalProperties": members}
    return {"type": "array", "items": schema_of(args[0])}


def _constraints(metadata: Sequence[object]) -> Schema:
    schema: Schema = {}
    for item in metadata:
        if isinstance(item, Range):
            schema |= _bounds(item)
        elif isinstance(item, Pattern):
            schema["pattern"] = f"^({item.regex})$"
        elif isinstance(item, Forbidden):
            refused = schema.setdefault("not", {"anyOf": []})
            refused["anyOf"].append({"pattern": f"^({item.regex})$"})
    return schema


def _bounds(item: Range) -> Schema:
    given = {
        "minimum": item.minimum,
        "maximum": item.maximum,
        "exclusiveMinimum": item.above,
    }
    bounds: Schema = {name: bound for name, bound in given.items() if bound is not None}
    return bounds if item.also is None else {"anyOf": [{"const": item.also}, bounds]}


def _dataclass(kind: type, *, partial: bool = False) -> Schema:
    """Return the schema of a mapping with the fields of `kind`."""
    docs = field_docs(kind)
    properties: Schema = {}
    for name, annotation in hints(kind).items():
        schema = schema_of(annotation, partial=partial)
        described = {"description": docs[name]} if name in docs else {}
        properties[name] = (_nullable(schema) if partial else schema) | described
    found: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    missing = dataclasses.MISSING
    needed = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is missing and field.default_factory is missing
    ]
    return found | ({"required": needed} if needed and not partial else {})


def _nullable(schema: Schema) -> Schema:
    """Take `null` as well, which clears a lower layer."""
    described = {"description": schema["description"]} if "description" in schema else {}
    choices = _choices({key: value for key, value in schema.items() if key != "description"})
    if len(choices) > 1 or "not" in choices[0] or "$ref" in choices[0]:
        return {"anyOf": [*choices, {"type": "null"}], **described}
    if "enum" in choices[0]:
        return {"enum": [*choices[0]["enum"], None], **described}
    if "type" in choices[0]:
        return {**choices[0], "type": [choices[0]["type"], "null"], **described}
    return schema


def _choices(schema: Schema) -> list[Schema]:
    """Return the kinds of value that a schema takes, but for `null`."""
    if set(schema) != {"anyOf"}:
        return [schema] if schema != {"type": "null"} else []
    return [choice for each in schema["anyOf"] for choice in _choices(each)]


def _stage_field(field: StageField) -> Schema:
    schemas = [schema_of(annotation, partial=True) for annotation in field.annotations]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    if isinstance(field.declared_by, Axis):
        doc = f"Same as an entry of axis `{field.declared_by.name}` in a strategy file."
    else:
        doc = field_docs(field.declared_by).get(field.name, "")
    return schema | ({"description": doc} if doc else {})


def _axis_entry(axis: Axis) -> Schema:
    schema = _dataclass(StrategyEntry)
    properties = schema["properties"]
    properties["axis"] |= {"const": axis.name, "description": axis.summary}
    properties["l1_owner"] = {"enum": [axis.owner.value, None]}
    if axis.policies:
        names = [policy.value for policy in axis.policies]
        spellings = dict.fromkeys([*names, *(name.replace("_", "-") for name in names)])
        properties["routing"] |= {"enum": [*spellings, None]}
    else:
        properties["routing"] = {"type": "null"}
    own = _dataclass(axis.options)
    required = [*schema["required"], *own.get("required", [])]
    return schema | {"properties": properties | own["properties"], "required": required}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare both files; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stagemesh.config.jsonschema")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--folder", type=Path, default=Path("schemas"), help="where the files are")
    options = parser.parse_args(arguments)
    catalog = Catalog.installed()
    stale = []
    for name in SCHEMAS:
        file = options.folder / f"{name}.schema.json"
        text = schema_text(name, catalog)
        if options.check:
            if not file.is_file() or file.read_text(encoding="utf-8") != text:
                stale.append(str(file))
        else:
            options.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stderr.write(f"{name} is out of date: run `python -m stagemesh.config.jsonschema`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
