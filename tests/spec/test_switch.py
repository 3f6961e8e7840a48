"""What an option needs to act: which values switch it on, and how that is said."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from stagemesh.spec.switch import Needs, Switch, acts_with, needs_of


@pytest.mark.parametrize(
    ("switch", "on", "off", "text"),
    [
        (Switch(name="a", on=(True,)), [True], [False, None], "with `a: true`"),
        (Switch(name="a", off=("none",)), ["x", "auto"], ["none", None, {}], "with `a`"),
        (Switch(name="a"), ["x", 0.5], [False, None, {}, (), ""], "with `a`"),
        (
            Switch(name="a", off=("never",), by_default=True),
            [None, "on_failure"],
            ["never"],
            "without `a: never`",
        ),
        (Switch(name="a", by_default=True), [None, True, {}], [False], "without `a: false`"),
        (
            Switch(name="a", on=("K",), example="{default: K}"),
            ["K", {"default": "K"}, {"per_role": {"self": {"backend": "K"}}}],
            ["L", {"default": "L"}, {}, None],
            "with `a: {default: K}`",
        ),
    ],
)
def test_a_switch_lets_another_option_act(
    switch: Switch, on: list[object], off: list[object], text: str
) -> None:
    """By its value, or by what holds where nothing is said."""
    assert [switch.acts(value) for value in on] == [True] * len(on)
    assert [switch.acts(value) for value in off] == [False] * len(off)
    assert str(switch) == text


@pytest.mark.parametrize(
    ("needs", "asking", "idle"),
    [
        (Needs(all_of=()), [True, 0, "", ()], [False, {}]),
        (Needs(all_of=(), idle=(0,)), [False, 0.0, 1], [0]),
        (Needs(all_of=(), idle=()), [False, True], [{}]),
        (Needs(all_of=(), by_itself="cls"), [{"a": 1}], [{"cls": 1}, {}]),
    ],
)
def test_some_values_of_an_option_ask_for_nothing(
    needs: Needs, asking: list[object], idle: list[object]
) -> None:
    """What is switched off, empty, or acts by itself; `0` is no `false`."""
    assert [needs.asks(value) for value in asking] == [True] * len(asking)
    assert [needs.asks(value) for value in idle] == [False] * len(idle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options, some of which need others."""

    free: int = 0
    """Any number."""
    one: int = field(default=0, metadata=acts_with(Switch(name="a")))
    """Needs one option."""
    both: int = field(
        default=0,
        metadata=acts_with(
            Switch(name="a"), Switch(name="b", off=("no",), by_default=True), where="on weekdays"
        ),
    )
    """Needs two of them."""
    either: int = field(
        default=0,
        metadata={
            "more": 1,
            **acts_with((Switch(name="a"), Switch(name="c", on=(1,))), by_itself="d"),
        },
    )
    """Needs one of two."""


def test_what_options_need_is_read_from_their_declarations() -> None:
    """In the order in which they are declared, and said as a sentence goes on."""
    assert {name: str(needs) for name, needs in needs_of(Options).items()} == {
        "one": "acts only with `a`",
        "both": "acts only with `a` and without `b: no` on weekdays",
        "either": "acts only with `a` or `c: 1` or its own `d`",
    }
