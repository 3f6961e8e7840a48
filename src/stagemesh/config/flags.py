"""The table of flags, generated from the fields of stages, deploy files, launch and start.

Run as `python -m stagemesh.config.flags`, it writes `flag_table.json` beside this file; with
`--check` it only compares, and exits with 1 when the file is out of date. An option that a third
party adds, or that only engines have which are nobody's default (such as those for tests), has no
flag: `--set STAGE.FIELD=VALUE` reaches it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import Annotation, hints
from stagemesh.config.docs import field_docs
from stagemesh.config.fields import StageField, stage_fields
from stagemesh.config.flag_rules import GROUPS, NEGATIVE_SPELLINGS, SPELLINGS, StartFields
from stagemesh.config.flag_table import FILE, Flag
from stagemesh.config.forms import Form, choices_of, form_of
from stagemesh.config.given import Level, pipeline_fields, takes_flag
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.launch import LaunchOptions
from stagemesh.config.launch_rules import flag_name
from stagemesh.config.schema import DeployFile
from stagemesh.spec.axis import ENABLED, SIZE
from stagemesh.spec.pipeline import ExecutionType

_PARALLEL: Final = "parallel"
_ORDER: Final = (*GROUPS, "pipeline", "launch", "options of axes")


def flags_of(catalog: Catalog) -> tuple[Flag, ...]:
    """Return the flag of every field that can have one, by group, then as they are declared."""
    known = stage_fields(catalog)
    found = [
        *_plain_flags(StartFields, Level.START, hints(StartFields)),
        *_plain_flags(LaunchOptions, Level.LAUNCH, hints(LaunchOptions)),
        *_plain_flags(DeployFile, Level.PIPELINE, pipeline_fields()),
        *(_stage_flag(field, catalog) for field in known.values() if _is_public(field, catalog)),
        *_alias_flags(catalog, known),
    ]

    def place(flag: Flag) -> tuple[int, str]:
        number = _ORDER.index(flag.group) if flag.group in _ORDER else len(_ORDER)
        return number, flag.group

    return tuple(sorted((flag for flag in found if flag is not None), key=place))


def _is_public(field: StageField, catalog: Catalog) -> bool:
    if field.axis is not None or field.declared_by in KIND_FIELDS:
        return True
    return takes_flag(field) and bool(_default_kinds(field, catalog))


def _default_kinds(field: StageField, catalog: Catalog) -> frozenset[ExecutionType]:
    """Kinds of stage whose own engine takes the field."""
    takers = (each for each in catalog.engines.values() if field.name in hints(each.options))
    return frozenset(kind for engine in takers for kind in engine.default_for)


def _plain_flags(declared: type, level: Level, names: Iterable[str]) -> Iterator[Flag | None]:
    """Flags of fields that belong to no kind of stage."""
    docs = field_docs(declared)
    for name in names:
        yield _flag(name, level, (hints(declared)[name],), docs.get(name, ""), level.value)


def _stage_flag(field: StageField, catalog: Catalog) -> Flag | None:
    if field.axis is not None and field.sets is not None:
        is_size = field.sets.member in (SIZE, ENABLED)
        docs = {} if is_size else field_docs(field.axis.options)
        text = field.axis.summary if is_size else docs.get(field.sets.member, "")
        text += "".join(f", with `{name}: {value}`" for name, value in field.sets.implies.items())
        kinds = field.fits
        group = _PARALLEL if is_size else "options of axes"
    else:
        assert isinstance(field.declared_by, type)
        is_kinds = field.declared_by in KIND_FIELDS
        kinds = field.kinds if is_kinds else _default_kinds(field, catalog)
        text = field_docs(field.declared_by).get(field.name, "")
        group = "every stage"
        if len(kinds) < len(ExecutionType):
            group = f"{' and '.join(sorted(kind.value for kind in kinds))} stages"
    return _flag(field.name, Level.STAGE, field.annotations, text, group, kinds)


def _alias_flags(catalog: Catalog, known: Mapping[str, StageField]) -> Iterator[Flag | None]:
    """Flags of names that only pipelines give a meaning to."""
    aliases = {
        name: meant
        for model in catalog.models
        for name, meant in model.pipeline.stage_cli_aliases.items()
    }
    for name, (stage, field) in aliases.items():
        if name not in known:
            text = f"`{field}` of `{stage}`, for pipelines that have such a stage"
            yield _flag(name, Level.STAGE, known[field].annotations, text, "options of axes")


def _flag(
    name: str,
    level: Level,
    annotations: Sequence[Annotation],
    text: str,
    group: str,
    kinds: Iterable[ExecutionType] = (),
) -> Flag | None:
    form = form_of(annotations[0])
    if form is None:
        return None
    group = next((title for title, names in GROUPS.items() if name in names), group)
    spelled = flag_name(name)
    off = (f"--no{spelled[1:]}",) if form is Form.SWITCH else ()
    return Flag(
        field=name,
        level=level.value,
        form=form.value,
        spellings=(spelled, *SPELLINGS.get(name, ())),
        negative=(*off, *NEGATIVE_SPELLINGS.get(name, ())),
        choices=choices_of(annotations[0]) if len(annotations) == 1 else (),
        kinds=tuple(sorted(kind.value for kind in kinds)),
        group=group,
        is_common=group in GROUPS,
        help=_sentence(text),
    )


def _sentence(text: str) -> str:
    """Write a field's documentation as help is written: one line, lower case, no full stop."""
    line = " ".join(text.split()).removesuffix(".")
    is_name = any(char.isupper() for char in line.partition(" ")[0][1:])
    return line if is_name else line[:1].lower() + line[1:]


def table_text(flags: Iterable[Flag]) -> str:
    """Return the table as it is committed: one flag a line, without what is at its default."""
    return "[\n" + ",\n".join(json.dumps(_entry(flag)) for flag in flags) + "\n]\n"


def _entry(flag: Flag) -> dict[str, object]:
    values = {item.name: (getattr(flag, item.name), item.default) for item in fields(Flag)}
    return {name: value for name, (value, default) in values.items() if value != default}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stagemesh.config.flags")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--file", type=Path, default=FILE, help="where the table is")
    options = parser.parse_args(arguments)
    text = table_text(flags_of(Catalog.installed()))
    if not options.check:
        options.file.write_text(text, encoding="utf-8")
    elif not options.file.is_file() or options.file.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{options.file} is out of date: run `python -m stagemesh.config.flags`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
