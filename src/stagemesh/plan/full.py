"""Sums of shares of one device: when they are too much, and how that is said."""

from __future__ import annotations


def exceeds(share: float) -> bool:
    """Whether a sum of shares is more than a whole device, apart from rounding."""
    return round(share, 6) > 1


def shares_text(device: int, share: float) -> str:
    """Say what the ranks on a device may use of it."""
    return f"the ranks on device `{device}` may use `{share:.4g}` of its memory together"
