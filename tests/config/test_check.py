"""The walker: typed values out of plain ones, or every mistake with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.config.check import Forbidden, Pattern, check, checker
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.plain import plain
from stagemesh.spec.bounds import Range
from stagemesh.spec.unset import UNSET

HERE = Place(located=Nowhere(source="request"))


class Colour(Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A nested value."""

    number: Annotated[int, Range(minimum=1, maximum=9)]
    """A small number."""
    pair: tuple[object, str] = (None, "")
    """Two values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """A value with every kind of member."""

    inners: tuple[Inner, ...]
    """Nested values."""
    names: Mapping[str, int] = field(default_factory=dict)
    """Numbers by name."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Lists of lists."""
    colour: Colour | None = None
    """A choice or nothing."""
    share: float = 0.5
    """A number."""
    free: object = None
    """Anything."""


def messages(annotation: Any, value: object, label: str = "x") -> list[str]:  # noqa: ANN401
    """Return `path: message` of each finding."""
    place = Place(located=Nowhere(source="request"), label=label)
    found = check(annotation, value, place).diagnostics
    return [f"{each.origin.path if each.origin else ''}: {each.message}" for each in found]


def test_a_nested_value_is_built_from_json() -> None:
    """Mappings become dataclasses, lists tuples, words enums, at every depth."""
    given_value = {
        "inners": [{"number": 1, "pair": [[1, {"a": [2]}], "b"]}],
        "names": {"a": 1},
        "groups": [[0, 1], [2]],
        "colour": "blue",
        "share": 1,
        "free": [1, [2]],
    }
    assert check(Outer, given_value, HERE).value == Outer(
        inners=(Inner(number=1, pair=((1, {"a": (2,)}), "b")),),
        names={"a": 1},
        groups=((0, 1), (2,)),
        colour=Colour.BLUE,
        share=1.0,
        free=(1, (2,)),
    )


def test_every_mistake_is_told_at_its_own_place() -> None:
    """Nothing stops at the first one."""
    wrong = {
        "inners": [{"number": 10, "nmber": 1}, {}, 3, {"numbr": 1}],
        "names": {"a": True},
        "groups": [[0], ["1"]],
        "colour": "bleu",
        "share": "0.5",
    }
    assert messages(Outer, wrong, "") == [
        "inners[0].number: `inners[0].number` must be `1 to 9`, got `10`",
        "inners[0].nmber: unknown key `nmber` in `inners[0]`",
        "inners[1]: `inners[1].number` is missing",
        "inners[2]: `inners[2]` must be a mapping, got `3`",
        "inners[3].numbr: unknown key `numbr` in `inners[3]`",
        "names.a: `names.a` must be a whole number, got `true`",
        "groups[1][0]: `groups[1][0]` must be a whole number, got text `1`",
        "colour: `colour` does not take `bleu`",
        "share: `share` must be a number, got text `0.5`",
    ]
    assert check(Outer, wrong, HERE).value is UNSET


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, True, "`x` must be a whole number, got `true`"),
        (int, 2.0, "`x` must be a whole number, got `2.0`"),
        (int, "2", "`x` must be a whole number, got text `2`"),
        (int, None, "`x` must be a whole number, got `null`"),
        (float, True, "`x` must be a number, got `true`"),
        (float, 10**400, "`x` is too large for a number"),
        (bool, 1, "`x` must be `true` or `false`, got `1`"),
        (bool, "no", "`x` must be `true` or `false`, got text `no`"),
        (str, 3, "`x` must be text, got `3`"),
        (str, [1], "`x` must be text, got a list"),
        (str, {}, "`x` must be text, got a mapping"),
        (None, 3, "`x` must be `null`, got `3`"),
        (tuple[int, ...], "ab", "`x` must be a list, got text `ab`"),
        (tuple[int, str], [1], "`x` must be a list of `2` values, got a list"),
        (Mapping[str, int], [1], "`x` must be a mapping, got a list"),
        (Inner, [1], "`x` must be a mapping, got a list"),
        (Colour, 3, "`x` must be text, got `3`"),
        (Colour, [], "`x` must be text, got a list"),
        (Literal["a", "b"], "c", "`x` does not take `c`"),
        (Literal[1, 2], True, "`x` does not take `true`"),
        (Literal[1, 2], 3, "`x` does not take `3`"),
        (Colour | None, "rd", "`x` does not take `rd`"),
        (int | str, 2.5, "`x` must be a whole number or text, got `2.5`"),
        (float | list[int] | None, "a", "`x` must be a number or a list, got text `a`"),
        (Annotated[int, Range()] | Inner, "a", "`x` must be a whole number or a mapping, got text"),
        (Annotated[int, Range(minimum=1)] | str, 0, "`x` must be `>= 1`, got `0`"),
        (int | list[int], [1, "2"], "`x[1]` must be a whole number, got text `2`"),
        (Annotated[str, Pattern(regex="[0-9]", example="1")], "a", "`x` must be like `1`, got `a`"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected(
    annotation: object, value: object, message: str
) -> None:
    """Nothing is converted that the writer did not mean."""
    (found,) = messages(annotation, value)
    assert found.partition(": ")[2].startswith(message)
    assert len(found) <= 110


@pytest.mark.parametrize(
    ("annotation", "value", "built"),
    [
        (float, 2, 2.0),
        (float | int, 2, 2),
        (Optional[int], None, None),  # noqa: UP045  the old spelling has to work as well
        (int | str | None, "a", "a"),
        (int | str | None, None, None),
        (list[int], (1, 2), [1, 2]),
        (Sequence[int], [1, 2], (1, 2)),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Literal["a", 1], 1, 1),
        (Colour, Colour.RED, Colour.RED),
        (Inner, Inner(number=3), Inner(number=3)),
        (Annotated[int, Range(minimum=1)] | None, None, None),
        (object, {"a": [1]}, {"a": (1,)}),
        (Any, None, None),
    ],
)
def test_a_right_value_is_built(annotation: Any, value: object, built: object) -> None:  # noqa: ANN401
    """What fits passes, and what already has its type passes as it is."""
    result = check(annotation, value, HERE).value
    assert (result, type(result)) == (built, type(built))


def test_help_lists_what_is_allowed_and_the_nearest() -> None:
    """A near miss is named first."""
    (found,) = check(Colour, "rad", HERE).diagnostics
    assert found.help == "did you mean `red`? allowed here: `blue`, `red`"
    (found,) = check(Inner, {"number": 1, "par": 2}, HERE).diagnostics
    assert (found.code, found.help) == (
        "CF010",
        "did you mean `pair`? allowed here: `number`, `pair`",
    )


def test_a_refused_value_can_come_with_the_right_spelling() -> None:
    """A pattern may know how another type is written."""
    kind = Annotated[
        str, Pattern(regex=".*", example="1", rewrite=lambda value: f"write `'{value}'`")
    ]
    place = Place(located=Nowhere(source="x"))
    (found,) = check(kind, 3, place).diagnostics
    assert found.help == "write `'3'`"


def test_a_key_is_checked_at_its_own_place() -> None:
    """Keys of mappings may have a type with a constraint."""
    kind = Mapping[Annotated[str, Pattern(regex="a[0-9]", example="a0")], int]
    assert messages(kind, {"a1": 1, "b": 2}) == ["b: `x.b` must be like `a0`, got `b`"]


def test_a_long_label_is_cut_at_its_front() -> None:
    """The end of a path says most."""
    (found,) = messages(int, "a", "first." * 20 + "last")
    assert "first.last` must be" in found
    assert len(found) <= 100


def test_a_value_that_was_refused_before_is_not_told_again() -> None:
    """`UNSET` inside a value means that its reader has reported it."""
    checked = check(Mapping[str, int], {"a": UNSET}, HERE)  # type: ignore[type-abstract]
    assert (checked.value, checked.diagnostics) == (UNSET, ())
    assert check(Inner, {"number": UNSET}, HERE).diagnostics == ()


def test_one_layer_may_leave_members_out_and_clear_them() -> None:
    """A partial run tells wrong values, not missing ones; `null` is welcome anywhere."""
    run = Run(partial=True)
    assert checker(Inner)({"pair": None}, HERE, run) == {"pair": None}
    assert checker(Mapping[str, int])({"a": None, "b": 1}, HERE, run) == {"b": 1}
    assert run.findings == []
    assert checker(Inner)({"number": "a", "x": 1}, HERE, run) is UNSET
    assert [found.code for found in run.findings] == ["CF012", "CF010"]


@pytest.mark.parametrize("annotation", [bytes, set[int], "int"])
def test_an_annotation_that_no_value_can_have_is_a_fault_of_ours(annotation: object) -> None:
    """Plug-in authors see at once that a type cannot be configured."""
    with pytest.raises(TypeError, match="no annotation of a configured value"):
        checker(annotation)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_plain_value_is_built_or_told(value: object) -> None:
    """Nothing raises; a value that passes passes again unchanged."""
    for annotation in (Outer, Inner, Colour, int | str, Mapping[str, tuple[int, ...]], object):
        checked = check(annotation, value, HERE)  # type: ignore[arg-type]
        assert (checked.value is UNSET) == bool(checked.diagnostics)
        if checked.value is not UNSET:
            assert check(annotation, checked.value, HERE).value == checked.value  # type: ignore[arg-type]


def test_the_value_of_a_refused_key_is_not_looked_at() -> None:
    """Nothing about it is told."""
    name = Annotated[str, Forbidden(regex="NO.*", reason="is not allowed", remedy="write `yes`")]
    [found] = check(dict[name, int], {"nono": "x", "yes": 1}, HERE).diagnostics
    assert (found.code, found.message) == ("CF015", "`nono` is not allowed")
    assert found.help == "write `yes`"


@given(JSON)
def test_plain_values_are_free_of_lists(value: object) -> None:
    """Equal values stay equal through tuples, and freezing twice changes nothing."""
    assert plain(plain(value)) == plain(value)
    assert "[" not in repr(plain(value)) or "[" in str(value)
