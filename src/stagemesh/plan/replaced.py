"""What was typed, without the values in whose place others are tried."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from stagemesh.config.inputs import PlanInputs
from stagemesh.config.tree import Path, path_text
from stagemesh.spec.origin import Origin
from stagemesh.spec.unset import Unset


def without(inputs: PlanInputs, places: Collection[Origin]) -> PlanInputs:
    """Return inputs without the values of `--set` and of overrides that stand at some places."""
    sources = {place.source for place in places}
    paths = {place.path for place in places if not place.source.startswith("--set ")}
    given = inputs.stage_overrides
    if isinstance(given, str):
        given = json.loads(given)
    return replace(
        inputs,
        set_values=tuple(each for each in inputs.set_values if f"--set {each}" not in sources),
        stage_overrides=given if isinstance(given, Unset) else _left(given, paths, ()),
    )


def _left(given: Mapping[str, object], paths: Collection[str], above: Path) -> dict[str, object]:
    """Return the members of a mapping at any depth that are not among the paths."""
    return {
        key: _left(value, paths, (*above, key)) if isinstance(value, Mapping) else value
        for key, value in given.items()
        if path_text((*above, key)) not in paths
    }
