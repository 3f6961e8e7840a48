"""Environment variables of a stage: which a file may set, and how secrets stay off the screen."""

from __future__ import annotations

import json
import re
from typing import Annotated, Final, TypeAlias

from stagemesh.config.check import Forbidden, Pattern
from stagemesh.config.environment import PREFIX


def _as_text(value: object) -> str | None:
    if isinstance(value, bool | int | float):
        return f"write `{json.dumps(str(value).lower())}`"
    return None


RESERVED: Final = Forbidden(
    regex=f"(PYTHON|LD_|{PREFIX}).*",
    reason="cannot be set for a stage: it decides what runs there",
    remedy=f"no name may start with `PYTHON`, `LD_` or `{PREFIX}`",
)
"""Variables that decide what the interpreter and the loader run, and our own."""

SECRET: Final = Forbidden(
    regex=r".*(SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(API|ACCESS|PRIVATE|AUTH)_?KEY).*"
    r"|.*TOKEN(_?[0-9]+)?",
    reason="looks like a secret, and a plan shows every value",
    remedy="export it instead: stages inherit the environment of the command",
)
"""Variables whose values belong into no file that is shown or saved."""

VariableName: TypeAlias = Annotated[
    str, Pattern(regex="[A-Za-z_][A-Za-z0-9_]*", example="NAME"), RESERVED, SECRET
]
"""Name of an environment variable."""

VariableValue: TypeAlias = Annotated[
    str, Pattern(regex="[^\x00]*", example="text", rewrite=_as_text)
]
"""Value of an environment variable."""

_ASSIGNED: Final = re.compile(r"(?<![\w-])([\w-]+)[\"']?\s*[:=]")
"""A name and its sign. It starts where a word does, so that a long word is looked at once."""


def masked(line: str) -> str:
    """Return a line without what follows the name of a secret in it."""
    for found in _ASSIGNED.finditer(line):
        if SECRET.matches(found[1]):
            return f"{line[: found.end()]} ***"
    return line
