"""How fields look on a command line, and what becomes of the words that are typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.config.forms import Form, choices_of, form_of, read_words
from stagemesh.config.place import Run
from stagemesh.spec.bounds import Range
from stagemesh.spec.unset import UNSET


class Colour(Enum):
    """Two words."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """Something with members."""

    level: int = 0
    """How much."""


@pytest.mark.parametrize(
    ("annotation", "form"),
    [
        (bool, Form.SWITCH),
        (bool | None, Form.SWITCH),
        (int, Form.INTEGER),
        (Annotated[int, Range(minimum=1)] | None, Form.INTEGER),
        (int | Literal["none"] | None, Form.INTEGER),
        (float, Form.NUMBER),
        (str, Form.TEXT),
        (Literal["a", "b"], Form.TEXT),
        (Colour | None, Form.TEXT),
        (tuple[int, ...], Form.INTEGERS),
        (list[Annotated[int, Range(minimum=1)]], Form.INTEGERS),
        (tuple[str, ...] | None, Form.TEXTS),
        (str | tuple[str, ...] | None, Form.TEXTS),
        (Mapping[str, object], Form.OBJECT),
        (dict[str, str] | None, Form.OBJECT),
        (Nested | None, Form.OBJECT),
        (object, None),
        (Mapping[str, Nested], None),
        (tuple[Nested, ...], None),
        (bool | int, None),
    ],
)
def test_the_form_follows_from_the_annotation(annotation: Any, form: Form | None) -> None:  # noqa: ANN401
    """`None` for what no flag can carry."""
    assert form_of(annotation) is form


@pytest.mark.parametrize(
    ("annotation", "choices"),
    [
        (Literal["a", "b"] | None, ("a", "b")),
        (Colour, ("red", "blue")),
        (int | Literal["none"], ()),
        (str, ()),
    ],
)
def test_choices_are_listed_where_there_is_nothing_else(
    annotation: Any,  # noqa: ANN401
    choices: tuple[str, ...],
) -> None:
    """Of a union with other members they are not all that is taken."""
    assert choices_of(annotation) == choices


@pytest.mark.parametrize(
    ("words", "form", "value"),
    [
        (("8",), Form.INTEGER, 8),
        (("-1",), Form.INTEGER, -1),
        (("1e3",), Form.INTEGER, "1e3"),
        (("9" * 5000,), Form.INTEGER, "9" * 5000),
        (("\u0663",), Form.INTEGER, "\u0663"),
        (("0.5",), Form.NUMBER, 0.5),
        ((".5",), Form.NUMBER, 0.5),
        (("2",), Form.NUMBER, 2),
        (("1e999",), Form.NUMBER, "1e999"),
        (("nan",), Form.NUMBER, "nan"),
        (("8",), Form.TEXT, "8"),
        (("0,1",), Form.INTEGERS, (0, 1)),
        (("0", "1"), Form.INTEGERS, (0, 1)),
        (("0", "x"), Form.INTEGERS, (0, "x")),
        (("q,v",), Form.TEXTS, ("q", "v")),
        (('["q,v", "o"]',), Form.TEXTS, ("q,v", "o")),
        (("[1, 2]",), Form.INTEGERS, (1, 2)),
        (("2-3,6", "4"), Form.TEXTS, ("2-3,6", "4")),
        (('{"a": [1]}',), Form.OBJECT, {"a": (1,)}),
        (("null",), Form.INTEGER, None),
        (("null",), Form.TEXTS, None),
        (("null",), Form.OBJECT, None),
    ],
)
def test_words_become_plain_values(words: tuple[str, ...], form: Form, value: object) -> None:
    """What has another form than its field stays text, for the check of the field to say so."""
    run = Run()
    assert read_words(words, form, "--x", run) == value
    assert run.findings == []


@pytest.mark.parametrize(
    ("words", "form", "number"),
    [
        (("010",), Form.INTEGER, "10"),
        (("-007",), Form.INTEGER, "-7"),
        (("00",), Form.NUMBER, "0"),
        (("1,02",), Form.INTEGERS, "2"),
        (("1", "02"), Form.INTEGERS, "2"),
    ],
)
def test_a_number_with_a_zero_in_front_is_none(
    words: tuple[str, ...], form: Form, number: str
) -> None:
    """As in a file; text could not stand there, so none is offered."""
    run = Run()
    assert read_words(words, form, "--x", run) is UNSET
    text = words[-1].rpartition(",")[2]
    assert [str(found) for found in run.findings] == [
        f"error[CF005]: a number must not begin with `0`, got `{text}` (--x)"
    ]
    assert run.findings[0].help == f"write `{number}`"


@pytest.mark.parametrize("form", [Form.TEXT, Form.TEXTS])
def test_a_zero_in_front_of_a_text_is_part_of_it(form: Form) -> None:
    """Nobody could take it for a number."""
    run = Run()
    assert read_words(("010",), form, "--x", run) in ("010", ("010",))
    assert run.findings == []


def test_json_that_is_wrong_is_told_and_leaves_nothing() -> None:
    """With the flag as its place."""
    run = Run()
    assert read_words(("[1]",), Form.OBJECT, "--x", run) is UNSET
    assert [str(found) for found in run.findings] == [
        "error[CF004]: expected a JSON object, got a list (--x)"
    ]


@pytest.mark.parametrize("text", ['["a", ', "[" * 100_000])
def test_a_list_that_is_wrong_is_told(text: str) -> None:
    """With the two ways to write one."""
    run = Run()
    assert read_words((text,), Form.TEXTS, "--x", run) is UNSET
    assert [(found.code, found.help) for found in run.findings] == [
        ("CF002", """write `'["one", "two"]'`, or `one,two`""")
    ]


@given(st.sampled_from(list(Form)), st.lists(st.text(), min_size=1, max_size=3))
def test_no_word_is_ever_too_much(form: Form, words: list[str]) -> None:
    """Reading never raises."""
    run = Run()
    value = read_words(tuple(words), form, "--x", run)
    assert (value is UNSET) is bool(run.findings) or value is not UNSET
