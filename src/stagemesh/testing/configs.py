"""A checkpoint's configuration files held in memory, for testing readers of facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from stagemesh.spec.facts import WeightFiles
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import CheckpointConfigs, JsonObject


@frozen
class MemoryConfigs(CheckpointConfigs):
    """Configuration files by folder."""

    files: Mapping[str, JsonObject] = field(default_factory=dict)
    """Content by folder; `.` is the root."""
    weight_files: Mapping[str, WeightFiles] = field(default_factory=dict)
    """What the weight files amount to, by folder."""

    @property
    def root(self) -> JsonObject:
        """Return the content of the root; empty when it was not given."""
        return self.files.get(".", {})

    def component(self, folder: str) -> JsonObject:
        """Return the content of a folder; empty when it was not given."""
        return self.files.get(folder, {})

    def weights(self, folder: str) -> WeightFiles | None:
        """Return what was given for a folder."""
        return self.weight_files.get(folder)
