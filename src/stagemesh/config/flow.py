"""Values in YAML's flow style, as remedies have them that can be followed as they stand."""

from __future__ import annotations

import json
from typing import Final

import yaml

from stagemesh.config.tree import quoted
from stagemesh.config.yaml_core import CoreDumper
from stagemesh.spec.unset import UNSET

_LONGEST: Final = 40
"""Characters of a value that a remedy repeats."""
HIDDEN: Final = "..."
"""Stands for a value that a message cannot show."""


def flow_text(value: object) -> str:
    """Return a scalar as it stands inside a mapping on one line, in quotes where it needs them.

    It is `...` where it is too long, was refused, or has characters that messages do not show.
    """
    if value is UNSET:
        return HIDDEN
    if not isinstance(value, str):
        return quoted(value)[1:-1]
    if len(value) > _LONGEST:
        return HIDDEN
    flow = yaml.dump([value], Dumper=CoreDumper, default_flow_style=True, width=2 * _LONGEST)
    text = value if flow == f"[{value}]\n" else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() and "`" not in text else HIDDEN
