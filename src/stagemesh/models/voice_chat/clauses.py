"""Cuts streamed text into clauses that can be spoken one by one, as early as is safe.

Contract: cuts fall at white space only (but inside a run of `_WORD` characters without any),
and whether one does depends on nothing but the text since the last cut and the number of clauses
before. So text that arrives letter by letter gives the same clauses as text that arrives whole, and
the clauses joined are the text, up to white space.
"""

from __future__ import annotations

from typing import Final

_STOPS: Final = ".?!;:…"
_COMMAS: Final = ",—–"  # noqa: RUF001  # an en dash is meant
_CLOSERS: Final = "\"')]}*_`”’»"  # noqa: RUF001  # quotes as writers set them
_ABBREVIATIONS: Final = frozenset(  # a string of words reads best
    "mr. mrs. ms. dr. st. vs. e.g. i.e. prof. jr. sr. inc. ltd. co. approx. fig. "  # noqa: SIM905
    "a.m. p.m. u.s. u.k.".split()
)
_MIN_LETTERS: Final = 2
"""A clause with fewer letters (`1.`, `-`) stays with what follows."""
_COMMA: Final = 48
"""A comma ends a clause of at least this many characters."""
_LONGEST: Final = 220
"""The first white space after this many characters ends a clause."""
_FIRST_COMMA: Final = 8
"""Like `_COMMA`, for the first clause, which is kept short so that speech starts early."""
_FIRST_LONGEST: Final = 80
"""Like `_LONGEST`, for the first clause."""
_WORD: Final = 400
"""Characters without white space that are cut anyway."""


class ClauseSplitter:
    """Takes text as it arrives and gives clauses back as they become complete."""

    def __init__(self) -> None:
        """Start with no text."""
        self._pending = ""
        self._scanned = 0
        self._first = True

    def feed(self, text: str) -> list[str]:
        """Take the next piece of text; return the clauses it completes, without outer space."""
        self._pending = (
            (self._pending + text).lstrip() if not self._pending else self._pending + text
        )
        clauses: list[str] = []
        while (end := self._next_cut()) is not None:
            clause = self._pending[:end].strip()
            self._pending = self._pending[end:].lstrip()
            self._scanned = 0
            if clause:
                self._first = False
                clauses.append(clause)
        return clauses

    def close(self) -> list[str]:
        """Return what is left as a clause, if anything is; text after it begins a new clause."""
        clause = self._pending.strip()
        self._pending, self._scanned = "", 0
        self._first = self._first and not clause
        return [clause] if clause else []

    def _next_cut(self) -> int | None:
        """Return the length of the first complete clause of the pending text."""
        while self._scanned < len(self._pending):
            index = self._scanned
            self._scanned += 1
            if self._pending[index].isspace():
                if self._ends_clause(index, at_line_end=self._pending[index] == "\n"):
                    return index + 1
            elif index + 1 >= _WORD and not any(map(str.isspace, self._pending[: index + 1])):
                return index + 1
        return None

    def _ends_clause(self, index: int, *, at_line_end: bool) -> bool:
        head = self._pending[:index].strip()
        if sum(letter.isalpha() for letter in head) < _MIN_LETTERS:
            return len(head) >= _WORD
        longest = _FIRST_LONGEST if self._first else _LONGEST
        comma = _FIRST_COMMA if self._first else _COMMA
        bare = head.rstrip(_CLOSERS)
        if at_line_end or len(head) >= longest:
            return True
        if bare.endswith(tuple(_COMMAS)):
            return len(head) >= comma
        return bare.endswith(tuple(_STOPS)) and not _is_abbreviation(bare.split()[-1])


def _is_abbreviation(word: str) -> bool:
    """Tell whether the point at the end of `word` is no full stop (`Dr.`, the initial `J.`)."""
    word = word.lstrip("\"'([{*_`“‘«")  # noqa: RUF001  # quotes as writers set them
    initial = len(word) == 2 and word[0].isupper() and word[0] != "I" and word[1] == "."  # noqa: PLR2004
    return initial or word.lower() in _ABBREVIATIONS
