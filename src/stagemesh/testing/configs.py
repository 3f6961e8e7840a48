"""A checkpoint's configuration files held in memory, for testing readers of facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stagemesh.spec.pipeline import CheckpointConfigs, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfigs(CheckpointConfigs):
    """Configuration files by folder."""

    files: Mapping[str, JsonObject] = field(default_factory=dict)
    """Content by folder; `.` is the root."""

    @property
    def root(self) -> JsonObject:
        """Return the content of the root; empty when it was not given."""
        return self.files.get(".", {})

    def component(self, folder: str) -> JsonObject:
        """Return the content of a folder; empty when it was not given."""
        return self.files.get(folder, {})
