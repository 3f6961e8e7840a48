"""What was meant by flags that do not exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from stagemesh.cli._short_names import meant_by
from stagemesh.config.flag_table import load_flags
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

OTHER_WORDS: Final[Mapping[str, str]] = {
    "--batch-timeout": "`--request-batch-max-wait-ms` says how long a batch waits for companions",
    "--gpus": "`--devices N` says how many devices there are",
    "--num-gpus": "`--devices N` says how many devices there are",
    "--omni": "leave it out: every model is served by its stages",
}
"""Flags that other systems have for what is said differently here."""

_OF_ONE_STAGE: Final = re.compile("--stage[-_]([0-9]+)[-_]([A-Za-z0-9_-]+)")
_SET: Final = "--set"
_NUMBERS: Final = ("integer", "number")


def unknown_flags(
    unknown: Sequence[str], words: Sequence[str], flags: Sequence[str]
) -> list[Diagnostic]:
    """Say of each unknown word what it may mean; `words` are all, `flags` those that exist."""
    return [_told(word, *_value(word, words), flags) for word in dict.fromkeys(unknown)]


def _value(word: str, words: Sequence[str]) -> tuple[str, str | None]:
    """Return a flag without its value, and the value that was typed with it or behind it."""
    flag, sign, value = word.partition("=")
    if sign:
        return flag, value
    behind = words[words.index(word) + 1 :]
    return flag, behind[0] if behind and not behind[0].startswith("-") else None


def _told(word: str, flag: str, value: str | None, flags: Sequence[str]) -> Diagnostic:
    of_one = _OF_ONE_STAGE.fullmatch(flag)
    origin = Origin(layer=Layer.GLOBAL, source=word)
    if of_one is not None:
        stage, field = of_one[1], of_one[2].replace("-", "_").lower()
        return Diagnostic(
            code="CL011",
            message=f"unknown flag {quoted(flag, 60)}: a field of one stage has no flag of its own",
            origin=origin,
            help=" or ".join(_rewritten(stage, field, "VALUE" if value is None else value)),
        )
    if flag.lower() in OTHER_WORDS:
        return Diagnostic(
            code="CL012",
            message=f"unknown flag {quoted(flag, 60)}: it is said in another way here",
            origin=origin,
            help=OTHER_WORDS[flag.lower()],
        )
    others = "`--help` lists the flags of this command"
    if _SET in flags:
        others = f"`--help-all` lists every flag; `{_SET} STAGE.FIELD=VALUE` gives other fields"
    return Diagnostic(
        code="CL010",
        message=f"unknown flag {quoted(flag, 60)}",
        origin=origin,
        help=meant_by(flag, flags) or others,
    )


def _rewritten(stage: str, field: str, value: str) -> Iterator[str]:
    """The forms in which a field of one stage is said."""
    yield f"write `--set {shlex.quote(f'{stage}.{field}={value}')}`"
    forms = {each.field: each.form for each in load_flags()}
    number = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value)
    typed: object = value
    if number is not None and forms.get(field) in _NUMBERS:
        typed = float(value) if number[1] else int(value)
    yield f"`--stage-overrides {shlex.quote(json.dumps({stage: {field: typed}}))}`"
