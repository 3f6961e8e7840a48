"""What every test runs under: the profile of property tests, chosen by `HYPOTHESIS_PROFILE`.

`check` is small and the same every time, for `make check`; `default` looks for new examples on
every run; `nightly` looks much longer.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# How long one example takes says nothing on a shared machine; a test that hangs meets the timeout.
_SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("check", _SHARED, max_examples=25, derandomize=True, database=None)
settings.register_profile("default", _SHARED, max_examples=100)
settings.register_profile("nightly", _SHARED, max_examples=2_000)
os.environ.pop("COLUMNS", None)  # a screen is as wide as its test says, whoever runs the tests
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
