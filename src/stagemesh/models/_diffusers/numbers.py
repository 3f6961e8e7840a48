"""Numbers in a component's configuration, within what a network can have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stagemesh.spec.pipeline import JsonObject

_MOST: Final = 2**20
"""No width, depth or vocabulary is larger; a malformed file must not ask for absurd sums."""
_MOST_HEADS: Final = 2**12
"""No layer has more heads."""
_MOST_ITEMS: Final = 64
"""No list of numbers is longer."""


class MissingNumberError(LookupError):
    """A number that the rest follows from is not in the file."""


def number(config: JsonObject, key: str, default: int | None = None, *, least: int = 1) -> int:
    """Return the whole number at `key`, or `default` where it is missing or `null`.

    Raises `MissingNumberError` where there is no default, `TypeError` where it is no usable number.
    """
    value = config.get(key)
    if value is None and default is None:
        raise MissingNumberError(key)
    return _whole(default if value is None else value, key, least)


def heads(config: JsonObject, key: str, default: int | None = None) -> int:
    """Return the number of heads at `key`, like `number`."""
    found = number(config, key, default)
    if found > _MOST_HEADS:
        message = f"`{key}` must be at most `{_MOST_HEADS}`, got `{found}`"
        raise TypeError(message)
    return found


def ratio(config: JsonObject, key: str, default: float) -> float:
    """Return the positive number at `key`, or `default` where it is missing or `null`."""
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST:
        return value
    message = f"`{key}` must be a positive number, got `{value!r:.40}`"
    raise TypeError(message)


def numbers(config: JsonObject, key: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the list of whole numbers at `key`, or `default`; it is never empty."""
    value = config.get(key)
    if value is None and default is None:
        raise MissingNumberError(key)
    value = default if value is None else value
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST_ITEMS:
        message = f"`{key}` must be a list of whole numbers, got `{value!r:.40}`"
        raise TypeError(message)
    return tuple(_whole(item, key, 1) for item in value)


def length(config: JsonObject, key: str) -> int:
    """Return how many items the list at `key` has; 0 where it is missing or `null`."""
    value = config.get(key)
    if value is None:
        return 0
    if not isinstance(value, list):
        message = f"`{key}` must be a list, got `{value!r:.40}`"
        raise TypeError(message)
    return len(value)


def flag(config: JsonObject, key: str) -> bool:
    """Return whether `key` is set; it is not where it is missing or `null`."""
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    message = f"`{key}` must be `true` or `false`, got `{value!r:.40}`"
    raise TypeError(message)


def _whole(value: object, key: str, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST:
        return value
    message = f"`{key}` must be a whole number from `{least}` to `{_MOST}`, got `{value!r:.40}`"
    raise TypeError(message)
