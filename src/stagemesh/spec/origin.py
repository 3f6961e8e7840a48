"""Where a value came from. Every configured value carries an origin; equality ignores it."""

from __future__ import annotations

from enum import IntEnum

from stagemesh.spec.frozen import frozen


class Layer(IntEnum):
    """The layers of configuration; a higher one wins. This is the precedence table."""

    DEFAULT = 0
    """Default of the field itself."""
    PIPELINE = 1
    """Default of the model's pipeline."""
    PIPELINE_WIDE = 2
    """Root of a deploy file, for every stage to which no file gives a value of its own."""
    DEPLOY = 3
    """Deploy file, the model's own or the user's."""
    OVERLAY = 4
    """Deploy file that names a `base_config`."""
    PLATFORM = 5
    """Platform section of a deploy file."""
    STRATEGY = 6
    """Strategy file."""
    GLOBAL = 7
    """Flag or Python argument for all stages."""
    STAGE = 8
    """Flag or Python argument for one stage."""

    @property
    def is_command_line(self) -> bool:
        """True for what was typed for this one start, which wins over a strategy with a warning."""
        return self >= Layer.GLOBAL

    def takes_back(self, other: Layer) -> bool:
        """Whether who switches a thing off here means what `other` says about it, too.

        Nobody means that of what was typed in the same breath.
        """
        return self > other and not other.is_command_line


@frozen
class Origin:
    """A place in the user's input, or in what ships with stagemesh."""

    layer: Layer
    """The layer that the value belongs to."""
    source: str
    """File name as the user gave it, a flag such as `--stage-overrides`, or a short description."""
    line: int | None = None
    """Line in the file, from 1."""
    column: int | None = None
    """Column in the file, from 1."""
    path: str = ""
    """Path of the value inside the source, such as `strategies.thinker[0].size`."""
    shipped: bool = False
    """Whether the file ships with the model, so that the value is the model's own default."""

    def __str__(self) -> str:
        """`file:line:column`, or the source alone where it has no lines."""
        if self.line is None:
            return self.source
        if self.column is None:
            return f"{self.source}:{self.line}"
        return f"{self.source}:{self.line}:{self.column}"
