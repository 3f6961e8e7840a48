"""Every word of the command line, gathered from the parsers of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, cast

from stagemesh.cli._flags import FieldAction
from stagemesh.cli._main import whole_parser
from stagemesh.config.catalog import Catalog
from stagemesh.plan.explain_field import field_names
from stagemesh.plan.pages import codes
from stagemesh.spec.frozen import frozen


class Kind(Enum):
    """What completes an argument."""

    WORDS = "words"
    """Fixed words; none where anything may be written."""
    FILE = "file"
    """Names of files."""
    MODEL = "model"
    """Names of files and of assembled checkpoints, besides fixed words."""


@frozen
class Takes:
    """What an argument takes."""

    kind: Kind
    """What completes it."""
    words: tuple[str, ...] = ()
    """Fixed words."""


@frozen
class FlagWords:
    """One flag."""

    names: tuple[str, ...]
    """Its spellings."""
    takes: Takes | None
    """What stands behind it; `None` for nothing."""
    help: str
    """What it is for."""


@frozen
class CommandWords:
    """One command."""

    name: str
    """What is typed."""
    summary: str
    """One line about it."""
    flags: tuple[FlagWords, ...]
    """Its flags."""
    positions: tuple[Takes, ...]
    """What stands at each place behind it."""
    repeats: bool
    """Whether the last place may be filled several times."""


_FILES: Final = ("FILE", "A", "B")
_MODELS: Final = ("MODEL", "MODEL|NAME")


def command_words() -> tuple[CommandWords, ...]:
    """Gather the words of every command."""
    catalog = Catalog.installed()
    recipes = [m.pipeline.model_type for m in catalog.models if m.pipeline.checkpoint_recipe]
    fixed = {
        "RECIPE": tuple(recipes),
        "MODEL|NAME": tuple(catalog.axes),
        "WHAT": tuple(_topics(catalog)),
    }
    return tuple(
        _command(name, parser, summary, fixed) for name, parser, summary in command_parsers()
    )


def command_parsers() -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield name, parser and summary of every command; argparse has no public way to them."""
    for action in whole_parser()._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            summaries = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
            for name, each in action.choices.items():
                yield name, each, summaries[name]


def _command(
    name: str,
    parser: argparse.ArgumentParser,
    summary: str,
    fixed: Mapping[str, tuple[str, ...]],
) -> CommandWords:
    actions = list(parser._actions)  # noqa: SLF001  as above
    placed = [action for action in actions if not action.option_strings]
    return CommandWords(
        name=name,
        summary=summary,
        flags=tuple(
            FlagWords(
                names=tuple(action.option_strings),
                takes=None if action.nargs == 0 else _takes(action, fixed),
                help=help_of(action),
            )
            for action in actions
            if action.option_strings
        ),
        positions=tuple(_takes(action, fixed) for action in placed),
        repeats=bool(placed) and placed[-1].nargs in ("+", "*"),
    )


def help_of(action: argparse.Action) -> str:
    """Return what an argument says about itself, though the short help may leave it out."""
    text = action.flag.help if isinstance(action, FieldAction) else action.help or ""
    return text.replace("%%", "%")


def _takes(action: argparse.Action, fixed: Mapping[str, tuple[str, ...]]) -> Takes:
    metavar = str(action.metavar)
    if isinstance(action, FieldAction):
        return Takes(kind=Kind.WORDS, words=action.flag.choices)
    if action.choices is not None:
        return Takes(kind=Kind.WORDS, words=tuple(map(str, cast("list[object]", action.choices))))
    if metavar in _FILES:
        return Takes(kind=Kind.FILE)
    kind = Kind.MODEL if metavar in _MODELS else Kind.WORDS
    return Takes(kind=kind, words=fixed.get(metavar, ()))


def _topics(catalog: Catalog) -> Iterator[str]:
    """Everything that can be explained."""
    yield "axis"
    yield from codes()
    yield from field_names(catalog)
    stages = {stage.model_stage for model in catalog.models for stage in model.pipeline.stages}
    yield from (f"{stage}.{axis}" for stage in sorted(stages) for axis in sorted(catalog.axes))
