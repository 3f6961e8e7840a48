"""The small words of the system: bounds, policies, closed patterns, `UNSET`, references."""

from __future__ import annotations

import math

import pytest

from stagemesh.spec.bounds import Range
from stagemesh.spec.patterns import Policy, Routing
from stagemesh.spec.reference import resolve
from stagemesh.spec.unset import UNSET


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "text"),
    [
        (Range(), -1e300, math.nan, "any number"),
        (Range(minimum=1), 1, 0, ">= 1"),
        (Range(maximum=2), 2, 2.5, "<= 2"),
        (Range(minimum=0, maximum=1), 0.5, -0.1, "0 to 1"),
        (Range(above=0), 1e-9, 0, "> 0"),
        (Range(above=0, maximum=2), 2, 0, "> 0 and <= 2"),
        (Range(minimum=1, also=-1), -1, 0, "-1 or >= 1"),
    ],
)
def test_a_range_holds_its_ends_and_says_them(
    bounds: Range, inside: float, outside: float, text: str
) -> None:
    """A side that is not given is open; what is no number lies nowhere."""
    assert bounds.allows(inside)
    assert not bounds.allows(outside)
    assert str(bounds) == text


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("round-robin", Policy.ROUND_ROBIN),
        ("least_queue", Policy.LEAST_QUEUE),
        ("least-queue-length", Policy.LEAST_QUEUE),
        ("nope", None),
    ],
)
def test_policies_are_read_in_either_spelling(text: str, policy: Policy | None) -> None:
    """As files and as the load balancers of others write them."""
    assert Policy.parse(text) is policy


def test_patterns_are_closed() -> None:
    """The runtime has to know what each of them means."""
    with pytest.raises(TypeError, match="patterns are closed"):
        type("Mine", (Routing,), {})


def test_unset_is_shown_by_its_name_and_is_false() -> None:
    """It is no value."""
    assert repr(UNSET) == "UNSET"
    assert not UNSET


@pytest.mark.parametrize("reference", ["", "os", "os:", ":system"])
def test_a_malformed_reference_is_refused(reference: str) -> None:
    """Before anything is imported."""
    with pytest.raises(ValueError, match="no reference of the form"):
        resolve(reference)


def test_a_reference_names_an_attribute_of_a_module() -> None:
    """At any depth."""
    assert resolve("stagemesh.spec.patterns:Policy.parse") == Policy.parse
    with pytest.raises(AttributeError):
        resolve("stagemesh.spec.patterns:Nothing")
