"""Value types are what `dataclasses` would make of the same class."""

from __future__ import annotations

import copy
import math
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest

from stagemesh.spec.frozen import frozen


@frozen
class Point:
    """Something with every sort of field."""

    x: float
    """Demanded."""
    label: str = "here"
    """With a default."""
    tags: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Made anew for each."""
    origin: str = field(default="", compare=False, repr=False)
    """Not looked at."""
    double: float = field(init=False)
    """Derived."""
    fixed: int = field(init=False, default=7)
    """Never given."""

    def __post_init__(self) -> None:
        """Derive."""
        object.__setattr__(self, "double", self.x * 2)


@frozen
class Empty:
    """Nothing."""


@frozen
class Named:
    """One field, and an equality of its own."""

    name: str
    """Its name."""

    def __eq__(self, other: object) -> bool:
        """Whatever the case."""
        return isinstance(other, Named) and other.name.lower() == self.name.lower()

    def __hash__(self) -> int:
        """Whatever the case."""
        return hash(self.name.lower())

    def __repr__(self) -> str:
        """The name alone."""
        return self.name


@frozen
class Level:
    """One field."""

    decibel: float
    """Any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """What `dataclasses` makes of it."""

    x: float
    label: str = "here"


def test_fields_are_given_by_name_or_by_default() -> None:
    """Defaults, factories, derived fields and `__post_init__` work as ever."""
    first, second = Point(x=1.5), Point(x=1.5, label="there", tags={"a": 1}, origin="file")
    assert (first.x, first.label, first.tags, first.double, first.fixed) == (1.5, "here", {}, 3, 7)
    assert (second.label, second.tags, second.origin) == ("there", {"a": 1}, "file")
    assert Point(x=0).tags is not Point(x=0).tags
    assert Empty() == Empty()


@pytest.mark.parametrize("given", [{}, {"x": 1, "y": 2}, {"x": 1, "fixed": 8}])
def test_other_arguments_are_refused(given: Mapping[str, Any]) -> None:
    """Missing, unknown and derived ones; the first instance as well as later ones."""

    @frozen
    class Fresh:
        x: float
        fixed: int = field(init=False, default=7)

    for _ in range(2):
        with pytest.raises(TypeError, match="__init__"):
            Fresh(**given)
    with pytest.raises(TypeError):
        Fresh(1)  # type: ignore[call-arg]


def test_equality_and_hash_look_at_the_compared_fields() -> None:
    """Of the same class only; a NaN is the same as itself."""
    assert Point(x=1, origin="a") == Point(x=1, origin="b")
    assert Point(x=1) != Point(x=2)
    assert Point(x=1) != Plain(x=1)  # type: ignore[comparison-overlap]
    assert Level(decibel=math.nan) == Level(decibel=math.nan)
    assert Named(name="A") == Named(name="a")
    assert len({Named(name="A"), Named(name="a")}) == 1
    assert hash(Empty()) == hash(Empty())


def test_the_text_is_that_of_a_dataclass() -> None:
    """Fields with `repr`, in order; a class may have its own."""
    assert repr(Point(x=1)) == "Point(x=1, label='here', tags={}, double=2, fixed=7)"
    assert (repr(Empty()), repr(Named(name="n"))) == ("Empty()", "n")


def test_nothing_can_be_changed() -> None:
    """Neither set, nor deleted, nor added."""
    point = Point(x=1)
    with pytest.raises(FrozenInstanceError, match="`x`"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="`x`"):
        del point.x
    with pytest.raises(FrozenInstanceError, match="`new`"):
        point.new = 2  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")


def test_it_is_a_dataclass() -> None:
    """What reads dataclasses reads it."""
    assert [item.name for item in fields(Level)] == ["decibel"]
    assert replace(Named(name="a"), name="b").name == "b"
    assert asdict(Named(name="a")) == {"name": "a"}
    point = Point(x=1, label="there")
    assert copy.deepcopy(point) == point
    assert is_dataclass(point)


def test_a_first_value_made_at_exit_keeps_the_exit_status_of_an_interrupt() -> None:
    """A process that ends by Ctrl-C dies of the signal, also when closing makes new value types."""
    script = (
        "import atexit, signal\n"
        "from stagemesh.spec.frozen import frozen\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "@frozen\n"
        "class Point:\n"
        "    x: int\n"
        "atexit.register(lambda: Point(x=1))\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -signal.SIGINT, done.stderr
