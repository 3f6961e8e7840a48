"""How many values of a plan were given, by whom, and how many follow from defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stagemesh.plan.edge_values import CONNECTORS
from stagemesh.plan.provenance import PLACEMENT
from stagemesh.plan.values import Plan, StagePlan, ValuePlan
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer


@frozen
class Tally:
    """The values of a plan by where they come from."""

    files: int
    """From files of the user."""
    command_line: int
    """From flags or Python arguments."""
    defaults: int
    """From the model itself, or because nobody said anything."""


def is_changed(value: ValuePlan) -> bool:
    """Whether it is other than what the model itself says."""
    return not value.is_default


def tally(plan: Plan) -> Tally:
    """Count every value of the pipeline and its stages once."""
    given = [value for _, value in effective_values(plan)]
    given += [value for stage in plan.stages for value in stage.values.values()]
    changed = [value for value in given if is_changed(value) and value.layer != PLACEMENT]
    typed = sum(Layer[value.layer.upper()].is_command_line for value in changed)
    unsaid = sum(len(list(defaults_of(stage))) for stage in plan.stages)
    return Tally(
        files=len(changed) - typed,
        command_line=typed,
        defaults=len(given) - len(changed) + unsaid,
    )


def effective_values(plan: Plan) -> Iterator[tuple[str, ValuePlan]]:
    """Yield what was given for the whole pipeline; what connectors say takes effect on edges."""
    for path, value in plan.values.items():
        if not path.startswith(f"{CONNECTORS}."):
            yield path, value


def defaults_of(stage: StagePlan) -> Iterator[tuple[str, object]]:
    """Yield path and value of everything that holds in a stage though nobody gave it."""
    return not_given(held_by(stage), stage.values)


def not_given(
    held: Mapping[str, object], said: Mapping[str, ValuePlan]
) -> Iterator[tuple[str, object]]:
    """Yield path and value of what holds though neither it nor a member of it was given."""
    for path, value in held.items():
        if path not in said and not any(given.startswith(f"{path}.") for given in said):
            yield path, value


def held_by(stage: StagePlan) -> Mapping[str, object]:
    """Return what holds in a stage by path: arguments, parameters and options."""
    groups: list[tuple[str, Mapping[str, object]]] = [
        ("", stage.engine_args),
        ("default_sampling_params.", stage.sampling),
        ("additional_config.", stage.model_args),
        *((f"axes.{axis.axis}.", axis.options) for axis in stage.axes),
    ]
    return {f"{prefix}{name}": value for prefix, values in groups for name, value in values.items()}
