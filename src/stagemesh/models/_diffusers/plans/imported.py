"""What `diffusers` and `transformers` declare about their networks, as `make plans` wrote it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stagemesh.spec.model_plan import ModelPlan
from stagemesh.spec.plan_json import from_json

FILE: Final = Path(__file__).parent / "imported.json"
"""The generated file."""


@functools.cache
def _all() -> Mapping[str, ModelPlan]:
    plans = json.loads(FILE.read_text(encoding="utf-8"))["plans"]
    return {each["name"]: from_json(each) for each in plans}


def imported(name: str) -> ModelPlan:
    """Return what a library declares about one of its classes: cuts and rules, without streams."""
    return _all()[name]
