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
    above: float | None = None
    """What every value exceeds, itself not allowed; in place of `minimum`."""
    also: float | None = None
    """One value outside that is allowed, because it stands for something that is no number."""

    def allows(self, value: float) -> bool:
        """Whether `value` lies within; NaN never does."""
        if value == self.also:
            return True
        above = self.minimum is None or value >= self.minimum
        beyond = self.above is None or value > self.above
        below = self.maximum is None or value <= self.maximum
        return above and beyond and below and value == value  # noqa: PLR0124  NaN is no value

    def __str__(self) -> str:
        """Say it for a message: `>= 1`, `<= 2`, `> 0`, `0 to 1`, or `-1 or >= 1`."""
        return self._text if self.also is None else f"{self.also:.15g} or {self._text}"

    @property
    def _text(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum:.15g} to {self.maximum:.15g}"
        sides = (("> ", self.above), (">= ", self.minimum), ("<= ", self.maximum))
        given = [f"{sign}{bound:.15g}" for sign, bound in sides if bound is not None]
        return " and ".join(given) or "any number"
