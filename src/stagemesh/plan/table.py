"""Text that fits a screen: aligned tables, and sentences that break between words only.

A width of `None` means that nobody looks at columns, as in a pipe: then nothing is broken. A table
that is too wide first breaks the cells of its last column, then moves columns below their row.
Names come from files and arguments, so both make their text `printable`; so must do whoever writes
a line without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

Rows: TypeAlias = Sequence[Sequence[str]]
"""Rows of equally many cells."""

_GAP: Final = "  "
_FOLDED: Final = "    "
"""Before a cell that stands below its row."""
_LEAST: Final = 28
"""Columns that a cell must have to be broken over lines where it stands."""
_EMPTY: Final = ("", "-")
"""Cells that are not worth a line of their own."""


def printable(text: str) -> str:
    """Replace what would move the cursor or change the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char == "\t" else "?" for char in text)


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """Break a line between words; lines after the first begin with `indent`. A long word stays."""
    text = printable(text)
    if width is None or len(text) <= width:
        return [text]
    lines: list[str] = []
    line = text[: len(text) - len(text.lstrip())]
    start = len(line)
    for word in text.split():
        if len(line) > start and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, start = indent, len(indent)
        line += f" {word}" if len(line) > start else word
    return [*lines, line]


def table(rows: Rows, width: int | None = None, *, headed: bool = False) -> Iterator[str]:
    """Align cells in columns; the first cell of a row that repeats the one above stays empty."""
    cleaned = [[printable(cell) for cell in row] for row in rows]
    if not cleaned:
        return
    columns = list(zip(*cleaned, strict=True))
    shown = _beside(columns, width)
    sizes = [max(map(len, columns[at])) for at in shown]
    room = None if width is None else width - _taken(sizes[:-1])
    below = _FOLDED if headed or len(shown) == 1 else " " * _taken(sizes[:1]) + _FOLDED[:2]
    above = ""
    for number, row in enumerate(cleaned):
        head, above = ("" if row[0] == above else row[0]), row[0]
        *fixed, last = [head, *(row[at] for at in shown[1:])]
        start = "".join(cell.ljust(size) + _GAP for cell, size in zip(fixed, sizes, strict=False))
        for line in wrapped(last, room):
            yield f"{start}{line}".rstrip()
            start = " " * len(start)
        if number or not headed:
            folded = [at for at in range(len(row)) if at not in shown and row[at] not in _EMPTY]
            for at in folded:
                text = f"{cleaned[0][at]}: {row[at]}" if headed else row[at]
                yield from wrapped(f"{below}{text}", width, f"{below}{_FOLDED}")


def _beside(columns: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Choose the columns that stand beside each other: as many as fit, rather those to the left."""
    sizes = [max(map(len, column)) for column in columns]
    word = [max(len(word) for cell in column for word in [*cell.split(), ""]) for column in columns]
    for count in range(len(columns), 1, -1):
        for others in itertools.combinations(range(1, len(columns)), count - 1):
            shown = [0, *others]
            last = shown[-1]
            room = (
                sizes[last] if width is None else width - _taken([sizes[at] for at in shown[:-1]])
            )
            if room >= min(sizes[last], max(_LEAST, word[last])):
                return shown
    return [0]


def _taken(sizes: Sequence[int]) -> int:
    """Columns that cells of these sizes take, with the gap behind each."""
    return sum(sizes) + len(_GAP) * len(sizes)
