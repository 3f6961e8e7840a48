"""The flags that fields have, from the committed table: no schema is loaded to show or parse them.

Every flag leaves a `GivenField` with the spelling that was typed; what is not typed leaves nothing.
Values are not judged here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from stagemesh.config.flag_table import Flag, load_flags
from stagemesh.config.inputs import GivenField

DEST: Final = "fields"
"""Where the namespace keeps what was typed."""

_METAVARS: Final[Mapping[str, str]] = {
    "integer": "N",
    "integers": "N",
    "number": "X",
    "object": "JSON",
    "text": "TEXT",
    "texts": "TEXT",
}
_LISTS: Final = ("integers", "texts")
_SWITCH: Final = "switch"


class FieldAction(argparse.Action):
    """Keeps what was typed of one field."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        flag: Flag,
        default: str = argparse.SUPPRESS,
    ) -> None:
        """Take the flag; its help stays out of sight unless it is a common one."""
        super().__init__(
            option_strings,
            dest,
            nargs=0 if flag.form == _SWITCH else "+" if flag.form in _LISTS else 1,
            default=default,
            metavar="|".join(flag.choices) or _METAVARS.get(flag.form),
            help=_help(flag) if flag.is_common else argparse.SUPPRESS,
        )
        self.flag = flag

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Add the field to those that were typed."""
        flag, typed = self.flag, option_string or self.flag.spellings[0]
        is_switch = flag.form == _SWITCH
        words = tuple(values) if isinstance(values, list) else ()
        field = GivenField(
            name=flag.field,
            value=typed not in flag.negative if is_switch else words,
            source=typed,
            is_typed=True,
        )
        given = vars(namespace)
        given[DEST] = (*given.get(DEST, ()), field)


class HelpAll(argparse.Action):
    """Shows the help with every flag."""

    def __init__(self, option_strings: Sequence[str], dest: str, hidden: list[FieldAction]) -> None:
        """Take the flags that the short help leaves out."""
        super().__init__(
            option_strings,
            dest,
            nargs=0,
            default=argparse.SUPPRESS,
            help=f"show this help with the other {len(hidden)} flags, and stop",
        )
        self._hidden = hidden

    def __call__(self, parser: argparse.ArgumentParser, *_given: object) -> NoReturn:
        """Give every flag its help, print all, and stop."""
        for action in self._hidden:
            action.help = _help(action.flag)
        parser.print_help()
        parser.exit()


def add_field_flags(
    parser: argparse.ArgumentParser, groups: Mapping[str, argparse._ArgumentGroup]
) -> None:
    """Add the flag of every field, those of known `groups` to them, and `--help-all`."""
    titles = dict(groups)
    hidden: list[FieldAction] = []
    for flag in load_flags():
        if flag.group not in titles:
            titles[flag.group] = parser.add_argument_group(flag.group)
        action = titles[flag.group].add_argument(
            *flag.spellings, *flag.negative, action=FieldAction, dest=DEST, flag=flag
        )
        if not flag.is_common and isinstance(action, FieldAction):
            hidden.append(action)
    parser.add_argument("--help-all", action=HelpAll, hidden=hidden)


def _help(flag: Flag) -> str:
    return flag.help.replace("%", "%%")
