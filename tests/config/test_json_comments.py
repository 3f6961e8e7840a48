"""A comment in what else is JSON is told where it stands, and never taken for text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.config.document import Findings, Source, read_json, read_yaml
from stagemesh.config.json_comments import json_comment
from stagemesh.spec.origin import Layer

SOURCE = Source(name="x.json", layer=Layer.DEPLOY)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{ // why\n "a": 1}', (1, 3)),
        ('{\n "a": 1, // why\n "b": 2\n}', (2, 10)),
        ('{"a": 1 /* why */}', (1, 9)),
        ('{\n /* why\n so */ "a": []}', (2, 2)),
        ('{"a": "//", "b": [1,], // why\n}', (1, 24)),
        ('{"a": "\\"/*"} // why', (1, 15)),
        ('// why\n{"a": 1}', (1, 1)),
        ('{"a": 1} /* why', (1, 10)),
    ],
)
def test_the_first_comment_is_found(text: str, place: tuple[int, int]) -> None:
    """By both readers; with it the file is neither JSON nor what its writer meant."""
    assert json_comment(text) == place
    for read in (read_json, read_yaml):
        findings: Findings = []
        assert read(text, SOURCE, findings) is None
        [found] = findings
        assert (found.code, found.message) == ("CF002", "not valid JSON: it has no comments")
        assert found.origin is not None
        assert (found.origin.line, found.origin.column) == place


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "http://x", "b": "/* */"}',
        '{"a": "x"}',
        "{a: http://x}",
        "{a: //x\n}",
        "a: //x",
        "# why\n{a: 1}",
        '{"a": 1 # why //\n}',
        '{"a": "//',
        '{"a": "\\',
        "/*" * 10,
        "{/" + "[" * 100_000 + "//",
    ],
)
def test_what_is_no_comment_is_left_to_the_reader(text: str) -> None:
    """Slashes in texts, and everything that is YAML alone."""
    assert json_comment(text) is None


@given(st.text(alphabet='{}[],:"\\/* \n1a'))
def test_json_itself_has_none(text: str) -> None:
    """Whatever its texts look like; and no text at all fails."""
    assert json_comment(json.dumps({text: [text]}, indent=1)) is None
    json_comment("{" + text)


@pytest.mark.parametrize("part", ["/*", '\\"', '"', "//", ",", '"/*'])
def test_a_hostile_text_is_read_once(part: str) -> None:
    """Each character costs the same, however many openings there are without an end."""
    json_comment('{//"' + part * 200_000)


def test_a_text_in_braces_is_told_to_be_neither() -> None:
    """A JSON file is read as YAML, and its writer does not know that."""
    findings: Findings = []
    assert read_yaml('{"a": 1 "b": 2}', SOURCE, findings) is None
    assert [each.message for each in findings] == [
        "not valid JSON or YAML: did not find expected ',' or '}' while parsing a flow mapping"
    ]
