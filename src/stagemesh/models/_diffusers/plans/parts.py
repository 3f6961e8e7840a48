"""What the plans cut, in short: planning asks for nothing else, and so loads no plan.

`parts.json` is written by `make plans` from the plans themselves.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stagemesh.spec.cost import Part
from stagemesh.spec.frozen import frozen

FILE: Final = Path(__file__).parent / "parts.json"
"""The generated file."""


@frozen
class CutParts:
    """What one plan cuts."""

    parts: frozenset[str]
    """Values of the parts."""
    limits: tuple[Mapping[str, object], ...]
    """Fields of its limits."""

    def why_not(self, config: Mapping[str, object], part: Part) -> str | None:
        """Say why a part of the network with this configuration is not cut; `None` if it is."""
        if part.value not in self.parts:
            return "its plan leaves that whole"
        for limit in self.limits:
            key = str(limit["key"])
            if limit["part"] == part.value and config.get(key) == limit["value"]:
                return f"with `{key}` = `{limit['value']}`, {limit['reason']}"
        return None


@functools.cache
def _all() -> Mapping[str, CutParts]:
    plans = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: CutParts(parts=frozenset(plan["parts"]), limits=tuple(plan["limits"]))
        for name, plan in plans.items()
    }


def cut_parts(name: str) -> CutParts | None:
    """Return what the plan of a class cuts; `None` where it has no plan."""
    return _all().get(name)
