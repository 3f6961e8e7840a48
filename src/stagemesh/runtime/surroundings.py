"""What a process finds around itself when it is started on this host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field

from stagemesh.config.environment import API_KEY, TOKEN
from stagemesh.spec.frozen import frozen

_SECRETS = frozenset({API_KEY, TOKEN})
"""Variables that are no affair of a stage, which runs foreign code."""


@frozen
class Surroundings:
    """How a process differs from one that inherits everything."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that it has beside those of this process, or in their place."""
    hidden: frozenset[str] = frozenset()
    """Variables that it does not have, whoever has set them."""
    binding: tuple[str, ...] = ()
    """A command that binds itself to CPUs and memory, and then becomes the process."""

    @property
    def environment(self) -> dict[str, str]:
        """All variables of the process, as those of this one are now."""
        inherited = {name: os.environ[name] for name in os.environ if name not in _SECRETS}
        given = {**inherited, **self.variables}
        return {name: value for name, value in given.items() if name not in self.hidden}
