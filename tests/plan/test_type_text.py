"""Types of configured values in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest

from stagemesh.config.check import Annotation, Pattern
from stagemesh.plan.type_text import held_type, is_by_name, type_text, without_null
from stagemesh.spec.bounds import Range


class Colour(Enum):
    """Two colours."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part."""

    size: int = 1
    """Its size."""


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, "whole number"),
        (float | None, "number or null"),
        (bool, "`true` or `false`"),
        (object, "any value"),
        (Any, "any value"),
        (Colour, "`red` or `blue`"),
        (Literal["a", "b"], "`a` or `b`"),
        (Annotated[int, Range(minimum=1)], "whole number >= 1"),
        (Annotated[str, Pattern(regex="a+", example="aa")], "text like `aa`"),
        (Annotated[str, "of no meaning"], "text"),
        (tuple[int, ...] | None, "list of whole number or null"),
        (list[str], "list of text"),
        (Mapping[str, Part], "mapping of mapping"),
        (dict[str, str], "mapping of text"),
        (Part, "mapping"),
    ],
)
def test_an_annotation_is_said_in_words(annotation: Annotation, text: str) -> None:
    """As the checker reads it."""
    assert type_text(annotation) == text


def test_null_is_taken_out_of_a_union() -> None:
    """Whatever else it holds stays."""
    assert without_null(int | None) is int
    assert type_text(without_null(int | str | None)) == "whole number or text"
    assert without_null(int | str) == int | str
    assert without_null(str) is str


def test_the_dataclass_inside_a_value_is_found() -> None:
    """In collections and unions, and nowhere in scalars and choices."""
    kinds: list[Annotation] = [Part, Part | None, tuple[Part, ...], Mapping[str, Part]]
    assert [held_type(kind) for kind in kinds] == [Part] * 4
    others: list[Annotation] = [int, Literal["a"], Mapping[str, int]]
    assert [held_type(kind) for kind in others] == [None] * 3


def test_a_mapping_is_by_name_and_a_dataclass_is_not() -> None:
    """The names of the first are free."""
    assert is_by_name(Mapping[str, Part] | None)
    assert not is_by_name(Part)
