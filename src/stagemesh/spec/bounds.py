"""Bounds of numbers, written into type annotations: `Annotated[int, Range(minimum=1)]`."""

from __future__ import annotations

from stagemesh.spec.frozen import frozen


@frozen
class Range:
    """The least and the greatest value allowed; `None` leaves that side open."""

    minimum: float | None = None
    """The least value, itself allowed."""
    maximum: float | None = None
    """The greatest value, itself allowed."""

    def allows(self, value: float) -> bool:
        """Whether `value` lies within; NaN never does."""
        above = self.minimum is None or value >= self.minimum
        below = self.maximum is None or value <= self.maximum
        return above and below and value == value  # noqa: PLR0124  NaN is no value

    def __str__(self) -> str:
        """Say it for a message: `>= 1`, `<= 2`, or `0 to 1`."""
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f">= {self.minimum:g}"
        return "any number" if self.maximum is None else f"<= {self.maximum:g}"
