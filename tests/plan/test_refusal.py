"""Which values a type refuses: found by trying, for the type only says that it does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from stagemesh.plan.refusal import Refusal, make_options
from stagemesh.spec.origin import Layer, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options with rules about one value, and about several."""

    low: int = 0
    """At most as much as `high`."""
    high: int = 8
    """At least as much as `low`."""
    even: int = 2
    """Even."""
    name: str = ""
    """Anything."""

    def __post_init__(self) -> None:
        """Refuse what is wrong."""
        if self.even % 2:
            raise ValueError("`even` is odd")
        if self.low > self.high:
            raise ValueError("`low` is above `high`")
        if self.name == "all" and self.low == self.high:
            raise ValueError("nothing is left")


@pytest.mark.parametrize(
    ("given", "refusals"),
    [
        ({"name": "a", "low": 3}, []),
        ({"name": "a", "even": 3}, [("`even` is odd", ("even",))]),
        ({"name": "a", "low": 9}, [("`low` is above `high`", ("low",))]),
        ({"name": "a", "low": 6, "high": 5}, [("`low` is above `high`", ("low", "high"))]),
        (
            {"even": 1, "low": 6, "high": 5},
            [("`even` is odd", ("even",)), ("`low` is above `high`", ("low", "high"))],
        ),
        (
            {"even": 1, "high": -1},
            [("`even` is odd", ("even",)), ("`low` is above `high`", ("high",))],
        ),
        ({"name": "all", "low": 8}, [("nothing is left", ("name", "low"))]),
    ],
)
def test_the_values_at_fault_are_found(
    given: dict[str, object], refusals: list[tuple[str, tuple[str, ...]]]
) -> None:
    """Each alone, and those that do not go together; all of them at once."""
    made, found = make_options(Options, given)
    assert [(each.reason, each.names) for each in found] == refusals
    assert (made is None) is bool(refusals)


def test_where_no_single_change_helps_all_are_named() -> None:
    """Two pairs that are each too much."""

    def fussy(**given: int) -> object:
        if len(given) > 1:
            raise ValueError("one at a time")
        return given

    made, found = make_options(fussy, {"a": 1, "b": 2, "c": 3})
    assert made is None
    assert found == (Refusal(reason="one at a time", names=("a", "b", "c")),)


def test_it_is_told_at_the_value_of_the_highest_layer() -> None:
    """With the others beside it; a value whose place is not known has none."""
    refusal = Refusal(reason="too much", names=("low", "high"))
    file = Origin(layer=Layer.DEPLOY, source="deploy.yaml")
    flag = Origin(layer=Layer.GLOBAL, source="--high")
    told = refusal.told("PL023", "it says", {"low": file, "high": flag})
    assert (told.message, told.origin) == ("it says: too much", flag)
    assert [(note.message, note.origin) for note in told.notes] == [("`low` is given here", file)]
    assert refusal.told("PL023", "it says", {}).origin is None
