"""Where each given value came from: by path, member by member, with what it replaced."""

from __future__ import annotations

from stagemesh.config.settings import Sourced
from stagemesh.plan.provenance import axis_values, values_of
from stagemesh.plan.values import ValuePlan
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.patterns import Policy
from tests.plan.making import axis, place


def said(value: object, origin: Origin, *below: Sourced[object]) -> Sourced[object]:
    """A value that was written somewhere."""
    return Sourced(value=value, origin=origin, superseded=below)


def test_a_mapping_is_told_member_by_member() -> None:
    """Members of one mapping come from several files; one without members stands for itself."""
    high, low = place("high.yaml", Layer.STAGE), place("low.yaml", Layer.DEPLOY)
    parts: dict[str | int, Sourced[object]] = {
        "a": said(1, high),
        "b": Sourced(value={}, origin=low, parts={"c": said(2, low)}),
    }
    whole: Sourced[object] = Sourced(value={}, origin=low, parts=parts)
    values = values_of({"env": whole, "empty": said({}, low)})
    assert {path: (each.value, each.origin) for path, each in values.items()} == {
        "empty": ({}, "low.yaml:1:3"),
        "env.a": (1, "high.yaml:1:3"),
        "env.b.c": (2, "low.yaml:1:3"),
    }


def test_what_was_replaced_is_told_with_its_own_layer() -> None:
    """Highest first, each as a value of its own."""
    low = said(4, place("low.yaml", Layer.DEPLOY))
    high = said(2, place("high.yaml", Layer.STRATEGY), low)
    assert values_of({"x": high}) == {
        "x": ValuePlan(
            value=2,
            layer="strategy",
            origin="high.yaml:1:3",
            superseded=(ValuePlan(value=4, layer="deploy", origin="low.yaml:1:3"),),
        )
    }


def test_what_the_model_says_itself_is_a_default() -> None:
    """By its layer, or because the file ships with it."""
    own = Origin(layer=Layer.DEPLOY, source="toy.yaml", shipped=True)
    files = {"own": own, "pipeline": place("p", Layer.PIPELINE), "user": place("u", Layer.DEPLOY)}
    values = values_of({name: said(1, origin) for name, origin in files.items()})
    assert {name: each.is_default for name, each in values.items()} == {
        "own": True,
        "pipeline": True,
        "user": False,
    }


def test_everything_about_an_axis_is_told() -> None:
    """Size, routing and options as far as they were given, and where one was switched on."""
    axes = [
        axis("dp", 2, Policy.RANDOM, mode="x"),
        axis("ep", None),
        axis("hsdp", None),
        axis("sp_ulysses", None, mode="x"),
        axis("cp", None, unit="y"),
    ]
    values = axis_values(axes, {"dp": 2, "ep": 4, "sp_ulysses": 1, "cp": 2})
    assert {path: each.value for path, each in values.items()} == {
        "axes.dp.size": 2,
        "axes.dp.routing": "random",
        "axes.dp.mode": "x",
        "axes.ep.size": 4,
        "axes.hsdp.size": True,
        "axes.sp_ulysses.mode": "x",
        "axes.cp.size": 2,
        "axes.cp.unit": "y",
    }
    assert values["axes.ep.size"].origin == str(axes[1].origin)
