"""Diagnostics on the screen and as data."""

from __future__ import annotations

import json

import pytest

from stagemesh.config.document import Document, Findings, Source, read_json, read_yaml
from stagemesh.plan.diagnostics import (
    diagnostics_github,
    diagnostics_json,
    diagnostics_text,
)
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Layer, Origin

TEXT = """strategies:
  thinker:
    - {axis: tp, size: 2}
    - {axis: ep, size: 3}
"""
FILE = Document(value={}, source="moe.yaml", layer=Layer.STRATEGY, text=TEXT)


def at(line: int | None, column: int | None = None, path: str = "") -> Origin:
    """A place in the file."""
    return Origin(layer=Layer.STRATEGY, source="moe.yaml", line=line, column=column, path=path)


def test_a_screen_shows_the_line_the_column_the_notes_and_the_help() -> None:
    """Everything that helps, and how many there are."""
    error = Diagnostic(
        code="AX022",
        message="`ep` size `3` does not match tp x dp = `2`",
        origin=at(4, 24, "strategies.thinker[1].size"),
        notes=(Note(message="`tp` = `2` is set here", origin=at(3, 24)), Note(message="so it is")),
        help="write `size: 2`",
    )
    warning = Diagnostic(code="PL034", severity=Severity.WARNING, message="it carries no edge")
    assert (
        diagnostics_text([error, warning], [FILE])
        == """\
error[AX022]: `ep` size `3` does not match tp x dp = `2`
  --> moe.yaml:4:24   strategies.thinker[1].size
   4 |     - {axis: ep, size: 3}
     |                        ^
note: `tp` = `2` is set here (moe.yaml:3:24)
note: so it is
help: write `size: 2`

warning[PL034]: it carries no edge

1 error, 1 warning. `stagemesh explain AX022` tells more.
"""
    )


def test_nothing_found_shows_nothing() -> None:
    """Not even a newline."""
    assert diagnostics_text([], [FILE]) == ""


def test_places_without_a_line_have_no_frame() -> None:
    """Python values, flags, and lines that are not there."""
    python = Document(value={}, source="moe.yaml", layer=Layer.STRATEGY)
    for document, origin in ((python, at(4, 1)), (FILE, at(None)), (FILE, at(99, 1))):
        found = Diagnostic(code="CF001", message="wrong", origin=origin)
        assert " | " not in diagnostics_text([found, found], [document])
        text = diagnostics_text([found, found], [document])
        assert text.endswith("\n\n2 errors. `stagemesh explain CF001` tells more.\n")


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("a: 1\r\n b: [1,\r\n", "   2 |  b: [1,\n     |   ^\n"),
        ('{"a": /* 1 */ 2}', '   1 | {"a": /* 1 */ 2}\n     |       ^\n'),
    ],
)
def test_a_mistake_of_form_shows_its_line(text: str, frame: str) -> None:
    """Although there is no document that would hold it."""
    findings: Findings = []
    assert read_yaml(text, Source(name="x.yaml", layer=Layer.DEPLOY), findings) is None
    assert frame in diagnostics_text(findings, [])


def test_a_mistake_of_form_in_json_shows_its_line() -> None:
    """Of what was given to a flag as well."""
    findings: Findings = []
    source = Source(name="--stage-overrides", layer=Layer.GLOBAL)
    assert read_json('{"a": }', source, findings) is None
    assert '   1 | {"a": }\n     |       ^\n' in diagnostics_text(findings, [])


def test_a_line_without_column_is_marked_at_its_start() -> None:
    """The whole line is meant."""
    found = Diagnostic(code="CF001", message="wrong", origin=at(1))
    assert "   1 | strategies:\n     | ^\n" in diagnostics_text([found], [FILE])


def test_long_lines_are_cut_around_the_place() -> None:
    """The mark stays below its column."""
    line = "a" * 500 + "X" + "b" * 500
    document = Document(value={}, source="moe.yaml", layer=Layer.STRATEGY, text=line)
    found = Diagnostic(code="CF001", message="wrong", origin=at(1, 501))
    shown, mark = diagnostics_text([found], [document]).splitlines()[2:4]
    assert shown[mark.index("^")] == "X"
    assert len(shown) <= 104


def test_a_file_cannot_change_the_terminal() -> None:
    """Escape sequences are shown as question marks, tabs as blanks."""
    document = Document(value={}, source="moe.yaml", layer=Layer.STRATEGY, text="\x1b[2J\tx")
    found = Diagnostic(code="CF001", message="bad \x1b[31m", origin=at(1, 6))
    text = diagnostics_text([found], [document])
    assert "\x1b" not in text
    assert "?[2J x\n     |      ^\n" in text


def test_json_holds_the_same() -> None:
    """One object, so that more can be added beside the list."""
    found = Diagnostic(
        code="CF001", message="wrong", origin=at(1, 2, "a.b"), notes=(Note(message="there"),)
    )
    assert json.loads(diagnostics_json([found])) == {
        "diagnostics": [
            {
                "code": "CF001",
                "severity": "error",
                "message": "wrong",
                "origin": {
                    "layer": "strategy",
                    "source": "moe.yaml",
                    "line": 1,
                    "column": 2,
                    "path": "a.b",
                },
                "notes": [{"message": "there", "origin": None}],
                "help": None,
            }
        ]
    }


def test_a_code_without_a_page_is_not_recommended() -> None:
    """A third party's code, for which there is nothing to read."""
    found = Diagnostic(code="TY001", message="wrong")
    assert diagnostics_text([found], []).endswith("\n\n1 error\n")
    warning = Diagnostic(code="CF001", message="odd", severity=Severity.WARNING)
    both = diagnostics_text([warning, found], [])
    assert both.endswith("\n\n1 error, 1 warning. `stagemesh explain CF001` tells more.\n")


def test_a_narrow_screen_breaks_between_words() -> None:
    """The line at fault is cut around the place instead."""
    found = Diagnostic(
        code="TY001",
        message="a message that is longer than the screen",
        origin=at(3, 24),
        notes=(Note(message="a note that is longer as well", origin=at(1, 2)),),
        help="help that does not fit either",
    )
    assert (
        diagnostics_text([found], [FILE], 30)
        == """\
error[TY001]: a message that
      is longer than the
      screen
  --> moe.yaml:3:24
   3 |   - {axis: tp, size: 2}
     |                      ^
note: a note that is longer as
      well (moe.yaml:1:2)
help: help that does not fit
      either

1 error
"""
    )


def test_github_gets_one_annotation_for_each() -> None:
    """With file, line and column where there are any; what has a meaning there is escaped."""
    error = Diagnostic(
        code="CF001",
        message="50% wrong",
        origin=Origin(layer=Layer.DEPLOY, source="a,b:c.yaml", line=3, column=7),
        notes=(Note(message="there"),),
        help="write, so: `x`",
    )
    flag = Diagnostic(
        code="AX007",
        severity=Severity.WARNING,
        message="replaced",
        origin=Origin(layer=Layer.STAGE, source="--stage-overrides"),
    )
    assert diagnostics_github([error, flag, Diagnostic(code="CF002", message="x")]) == (
        "::error file=a%2Cb%3Ac.yaml,line=3,col=7,title=CF001::"
        "50%25 wrong%0Anote: there%0Ahelp: write, so: `x`\n"
        "::warning title=AX007::replaced\n"
        "::error title=CF002::x\n"
    )
