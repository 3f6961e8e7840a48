"""Whether the record of where the values of a stage came from is about what the stage has.

A record is part of a plan that planning cannot give again: the files that it names may be gone. But
nothing has an axis above 1, or a field that no engine takes, without somebody who gave it.
"""

from __future__ import annotations

from collections.abc import Iterator

from stagemesh.config.tree import quoted
from stagemesh.plan.provenance import AXES
from stagemesh.plan.values import StagePlan
from stagemesh.spec.axis import SIZE

_UNSAID = "it does not say where {} comes from"


def misrecorded(stage: StagePlan) -> Iterator[tuple[str, str]]:
    """Yield paths of the record that another plan would have, each with the reason."""
    given = {path: value for path, value in stage.values.items() if not value.clears}
    sizes = {f"{AXES}.{axis.axis}.{SIZE}": axis.size for axis in stage.axes}
    for path, size in sizes.items():
        if path in given and given[path].value != size:
            yield path, f"it says {quoted(given[path].value)}, and the plan has {quoted(size)}"
        elif path not in given and size > 1:  # an option alone switches an axis on
            yield path, _UNSAID.format(quoted(size))
    for path in given:
        if path.startswith(f"{AXES}.") and f"{_axis_of(path)}.{SIZE}" not in sizes:
            yield path, "the plan does not have that axis"
    for name, value in stage.stage_args.items():
        if not any(path == name or path.startswith(f"{name}.") for path in given):
            yield name, _UNSAID.format(quoted(value))


def _axis_of(path: str) -> str:
    """Return the first two parts of a path, which name an axis."""
    return ".".join(path.split(".")[:2])
