"""The table of flags: what help and the parser need, without the schema it was generated from.

`python -m stagemesh.config.flags` writes it to `flag_table.json`, one flag a line. It says only how
a flag is spelled and shown; what its value may be is judged by its field.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from stagemesh.spec.frozen import frozen

FILE: Final = Path(__file__).with_name("flag_table.json")


@frozen
class Flag:
    """One flag, or the pair of a switch."""

    field: str
    """The field that it gives."""
    level: str
    """What the field speaks about: `stage`, `pipeline`, `launch` or `start`."""
    form: str
    """How its value is written: a value of `forms.Form`."""
    spellings: tuple[str, ...]
    """The flag, and what else it may be called."""
    negative: tuple[str, ...] = ()
    """Of a switch, what turns it off."""
    choices: tuple[str, ...] = ()
    """The words that it takes, where there are only so many."""
    kinds: tuple[str, ...] = ()
    """Kinds of stage that have the field; empty where it belongs to no kind."""
    group: str
    """Heading under which help shows it."""
    is_common: bool = False
    """Whether `--help` shows it, and not only `--help-all`."""
    help: str
    """What it says, in one line."""


def load_flags() -> tuple[Flag, ...]:
    """Return every flag, group by group, as help shows them."""
    listed: list[dict[str, object]] = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        Flag(**{key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()})  # type: ignore[arg-type]
        for entry in listed
    )
