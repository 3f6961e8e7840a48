"""What a case about flags consists of: what is typed, over which files, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stagemesh.config.inputs import ConfigInput
from stagemesh.spec.unset import UNSET, Unset


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is typed over which files, and what comes of it."""

    name: str
    """The case and what it is about."""
    line: str
    """What is typed behind MODEL."""
    alias: str | None = None
    """What is typed behind `--text-encoder-tp-size`, a name that one of the pipelines has."""
    model: str = "demo"
    """The pipeline."""
    deploy: ConfigInput | Unset = UNSET
    """Deploy file."""
    strategy: ConfigInput | Unset = UNSET
    """Strategy file."""
    gives: Mapping[str, object] = field(default_factory=dict)
    """Values of the plan."""
    codes: tuple[str, ...] = ()
    """Codes of what is told."""
    words: tuple[str, ...] = ()
    """What the text of that contains."""


def stages(**devices: object) -> dict[str, object]:
    """Return a deploy file with fields by stage number, such as `s0={"devices": "0"}`."""
    entries = [
        {"stage_id": int(name[1:]), **(given if isinstance(given, dict) else {})}
        for name, given in devices.items()
    ]
    return {"stages": entries}


def strategy(stage: str, **entry: object) -> dict[str, object]:
    """Return a strategy of one axis."""
    return {"strategies": {stage: [entry]}}
