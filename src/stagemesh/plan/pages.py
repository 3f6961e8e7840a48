"""The page of every diagnostic code: why it is told, an example that gives it, and the fix.

A page is `pages/<CODE>.md`: a title `# CODE: ...`, why, then the sections `## Example`, `## Fix`.
Files of an example stand in fences that name them (`yaml strategy.yaml`), its command in a fence
`console`; the fix holds the files that change. Tests run both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stagemesh.plan.table import wrapped
from stagemesh.spec.frozen import frozen

FOLDER: Final = Path(__file__).parents[1] / "pages"
"""Where the pages are."""
_SUFFIX: Final = ".md"
_FENCE: Final = "```"
_CODE: Final = re.compile("[A-Z]{2}[0-9]{3}")
_FORM: Final = re.compile(
    r"# (?P<code>[A-Z]{2}[0-9]{3}): (?P<title>[^\n]+)\n\n(?P<why>.+?)\n"
    r"\n## Example\n\n(?P<example>.+?)\n\n## Fix\n\n(?P<fix>.+?)\n",
    re.DOTALL,
)


@frozen
class Page:
    """What is to be said about one code, in Markdown."""

    code: str
    """The code."""
    title: str
    """What happened, in a few words."""
    why: str
    """Why it is told."""
    example: str
    """An example that gives it."""
    fix: str
    """What to write instead."""


def codes() -> tuple[str, ...]:
    """Every code that has a page, in order."""
    names = (file.stem for file in FOLDER.iterdir() if file.suffix == _SUFFIX)
    return tuple(sorted(name for name in names if _CODE.fullmatch(name)))


def has_page(code: str) -> bool:
    """Whether there is something to read about a code; those of a third party have no page."""
    return _file(code) is not None


def page_of(code: str) -> Page:
    """Read the page of a code that has one."""
    file = _file(code)
    assert file is not None, code
    match = _FORM.fullmatch(file.read_text(encoding="utf-8"))
    assert match is not None, f"{file} has not the form of a page"
    assert match["code"] == code, file
    return Page(**match.groupdict())


def page_text(page: Page, width: int | None = None) -> str:
    """Render a page: sentences broken to the width, files and commands set in as they are."""
    parts = [f"{page.code}: {page.title}", page.why, "Example:", page.example, "Fix:", page.fix]
    blocks = ["\n".join(block) for part in parts for block in _blocks(part, width)]
    return "\n\n".join(blocks) + "\n"


def _blocks(text: str, width: int | None) -> Iterator[list[str]]:
    """Yield the paragraphs and fences of a text as the lines that are shown."""
    for number, part in enumerate(text.split(_FENCE)):
        if number % 2:
            first, *lines = part.rstrip("\n").split("\n")
            name = first.partition(" ")[2]
            named = [f"# {name}", *lines] if name else lines
            yield [f"    {line}".rstrip() for line in named]
            continue
        for paragraph in filter(None, (each.strip() for each in part.split("\n\n"))):
            yield wrapped(" ".join(paragraph.split()), width)


def _file(code: str) -> Path | None:
    file = FOLDER / f"{code}{_SUFFIX}"
    return file if _CODE.fullmatch(code) and file.is_file() else None
