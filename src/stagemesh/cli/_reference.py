"""The pages of `docs/reference/`: generated from the parsers and declarations, committed, checked.

Run as `python -m stagemesh.cli._reference`, it writes the pages below the current folder; with
`--check` it only compares, and exits with 1 when a page is out of date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from stagemesh.cli._words import command_parsers, help_of
from stagemesh.config.catalog import Catalog
from stagemesh.plan.explain_axis import AxisDoc, explain_axis
from stagemesh.plan.pages import FOLDER, codes, page_of
from stagemesh.plan.words import taken_text

_COMMAND: Final = "python -m stagemesh.cli._reference"
_NOTE: Final = f"<!-- Written by `{_COMMAND}`: change the code and run it again. -->"
_UNNAMED: Final = ("positional arguments", "options")
"""Titles that argparse gives itself."""
_TOPICS: Final[Mapping[str, str]] = {
    "CF": "Configuration files",
    "AX": "Axes",
    "MD": "Models and checkpoints",
    "PL": "Plans",
    "RT": "Requests and run time",
    "SV": "The server",
    "CL": "The command line",
}


def commands_page() -> str:
    """Every command with its arguments; a group that several commands share is listed once."""
    lines = ["# Commands", "", _NOTE, "", "`python -m stagemesh` is the same as `stagemesh`."]
    shared: dict[str, list[argparse.Action]] = {}
    for name, parser, summary in command_parsers():
        lines += ["", f"## `stagemesh {name}`", "", f"{summary[:1].upper()}{summary[1:]}.", ""]
        for title, actions in _groups(parser):
            if title is None:
                lines += [line for action in actions for line in _argument(action)]
            else:
                shared.setdefault(title, actions)
                anchor = f"arguments-{title}".replace(" ", "-")
                lines += [f"- and all [arguments: {title}](#{anchor})"]
    for title, actions in shared.items():
        lines += ["", f"## Arguments: {title}", ""]
        lines += [line for action in actions for line in _argument(action)]
    return "\n".join([*lines, ""])


def _groups(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str | None, list[argparse.Action]]]:
    """Yield the arguments of a command by groups; those without a group of their own come first."""
    named = [group for group in parser._action_groups if group.title not in _UNNAMED]  # noqa: SLF001
    grouped = {id(action) for group in named for action in group._group_actions}  # noqa: SLF001
    yield None, [each for each in parser._actions if id(each) not in grouped]  # noqa: SLF001
    for group in named:
        yield str(group.title), group._group_actions  # noqa: SLF001


def _argument(action: argparse.Action) -> Iterator[str]:
    if isinstance(action, argparse._HelpAction):  # noqa: SLF001  every command has it
        return
    value = str(action.metavar or action.dest.upper())
    if action.choices is not None and action.metavar is None:
        value = "|".join(map(str, action.choices))
    if action.option_strings:
        value = "" if action.nargs == 0 else f" {value}"
        names = ", ".join(f"`{name}{value}`" for name in action.option_strings)
    else:
        names = f"`{value}`"
    yield f"- {names}: {help_of(action)}"


def codes_page() -> str:
    """Every code that has a page, by topic."""
    lines = ["# Diagnostic codes", "", _NOTE, "", "`stagemesh explain CODE` shows the same pages."]
    folder = Path("..", "..", "src", "stagemesh", FOLDER.name)
    for letters, topic in _TOPICS.items():
        lines += ["", f"## {topic}", ""]
        for code in codes():
            if code.startswith(letters):
                lines.append(f"- [{code}]({folder / code}.md): {page_of(code).title}")
    return "\n".join([*lines, ""])


def axes_page() -> str:
    """Every axis, as `stagemesh explain axis` tells it."""
    catalog = Catalog.installed()
    lines = ["# Axes", "", _NOTE, "", "`stagemesh explain axis NAME` tells more about one."]
    for axis in catalog.axes.values():
        lines += ["", *_axis(explain_axis(axis, catalog, {}))]
    return "\n".join([*lines, ""])


def _axis(doc: AxisDoc) -> Iterator[str]:
    yield from (f"## `{doc.name}`", "", f"{doc.summary[:1].upper()}{doc.summary[1:]}.", "")
    yield f"- fits: {', '.join(f'`{kind}`' for kind in doc.fits)}"
    yield f"- ranks: {doc.ranks}"
    yield f"- routing: `{doc.routing}`, by {doc.owner}"
    for title, values in (("policies", doc.policies), ("deploy file", doc.deploy_fields)):
        if values:
            yield f"- {title}: {', '.join(f'`{value}`' for value in values)}"
    yield from (f"- needs: {need}" for need in doc.needs)
    yield from (f"- pairs: {pair}" for pair in doc.pairs)
    for option in doc.options:
        taken = taken_text(option.type, option.default)
        yield f"- option `{option.name}`: {taken}. {option.doc}"


def metrics_page() -> str:
    """Every metric of a server."""
    from stagemesh.serve.metric_table import (  # noqa: PLC0415  one page alone
        FRONTENDS,
        METRICS,
        Kind,
    )

    lines = ["# Metrics", "", _NOTE, "", "What `GET /metrics` of a server exports for Prometheus."]
    lines += ["Where it has several frontends every series has the label `frontend` as well."]
    for kind in Kind:
        lines += ["", f"## {kind.value.capitalize()}s", ""]
        for metric in (*METRICS, *FRONTENDS):
            if metric.kind is kind:
                labels = ", ".join(f"`{label}`" for label in metric.labels)
                lines.append(
                    f"- `{metric.full_name}`{f' by {labels}' if labels else ''}: {metric.doc}"
                )
    return "\n".join([*lines, ""])


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "axes.md": axes_page,
    "codes.md": codes_page,
    "commands.md": commands_page,
    "metrics.md": metrics_page,
}
"""What writes each page."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the pages; returns the exit code."""
    parser = argparse.ArgumentParser(prog=_COMMAND)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument(
        "--folder", type=Path, default=Path("docs", "reference"), help="where the pages are"
    )
    options = parser.parse_args(arguments)
    stale = []
    for name, write in PAGES.items():
        file, text = options.folder / name, write()
        if not options.check:
            options.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(file)
    for file in stale:
        sys.stderr.write(f"{file} is out of date: run `{_COMMAND}`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
