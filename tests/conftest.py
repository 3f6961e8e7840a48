"""What every test runs under: the profile of property tests, chosen by `HYPOTHESIS_PROFILE`.

`check` is small and the same every time, for `make check`; `default` looks for new examples on
every run; `nightly` looks much longer. Tests whose examples are dear take a share of these numbers
(`tests/examples.py`).
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import re
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

_ROOMS: Final = Path(__file__).parents[1] / "src" / "stagemesh"
_SLOW_AS_A_WHOLE: Final = re.compile(r"^pytestmark = pytest\.mark\.slow$", re.MULTILINE)

# How long one example takes says nothing on a shared machine; a test that hangs meets the timeout.
_SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("check", _SHARED, max_examples=25, derandomize=True, database=None)
settings.register_profile("default", _SHARED, max_examples=100)
settings.register_profile("nightly", _SHARED, max_examples=2_000)
os.environ.pop("COLUMNS", None)  # a screen is as wide as its test says, whoever runs the tests
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, files of slow tests alone are: they would import torch."""
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if _SLOW_AS_A_WHOLE.search(text) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What random examples reach does not count: other tests reach it on every run, for less."""
    for item in items:
        if item.get_closest_marker("hypothesis") is not None:
            item.add_marker(pytest.mark.no_cover)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests stay until the end: no collection of garbage looks at them again.

    Where coverage is measured, what is imported late is imported now: a test that does not count
    may be the first to need it.
    """
    if session.config.pluginmanager.hasplugin("_cov"):
        for room in ("spec", "axes", "config", "plan", "cli"):
            for module in pkgutil.walk_packages([str(_ROOMS / room)], f"stagemesh.{room}."):
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
