"""How many examples a property test looks at where each of them costs more than usual."""

from __future__ import annotations

from hypothesis import settings


def fewer(divisor: int) -> settings:
    """One example where other tests have `divisor` of them, in every profile; at least five.

    For tests whose every example reads whole files, plans a whole pipeline or searches layouts.
    """
    profile = settings.default
    assert profile is not None
    return settings(profile, max_examples=max(profile.max_examples // divisor, 5))
