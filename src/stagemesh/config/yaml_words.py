"""What is wrong with the form of a YAML text, in words for who wrote it.

The parser says which token it did not expect; what is usual among people is said otherwise here.
Whatever else it finds is told in its own words.
"""

from __future__ import annotations

from typing import Final

import yaml

_ALIGNED: Final = "begin all keys of one mapping, and all `-` of one list, in the same column"
_WORDS: Final = (
    (
        "found another document",
        "more than one document",
        "take the line `---` out, or make a file of each",
    ),
    ("did not find expected key", "the indentation does not match the lines above", _ALIGNED),
    (
        "did not find expected '-' indicator",
        "the indentation does not match the list above",
        _ALIGNED,
    ),
    (
        "mapping values are not allowed",
        "a `:` where no key can be",
        f"put text that holds `: ` in quotes, or {_ALIGNED}",
    ),
)
"""What the parser says, what is said in its place, and what to do."""
_NO_TOKEN: Final = "cannot start any token"
_TAB: Final = "\t"


def yaml_words(error: yaml.MarkedYAMLError, text: str) -> tuple[str, str | None]:
    """Return what is wrong, and what to do about it where that is known."""
    problem, mark = error.problem or "", error.problem_mark
    if _NO_TOKEN in problem and mark is not None and _at(text, mark) == _TAB:
        return "a tab in front of a value", "indent with spaces: YAML takes no tabs there"
    for said, words, remedy in _WORDS:
        if said in problem:
            return words, remedy
    return " ".join(part for part in (problem, error.context) if part), None


def _at(text: str, mark: yaml.Mark) -> str:
    """Return the character at a place."""
    return text.splitlines()[mark.line][mark.column : mark.column + 1]
