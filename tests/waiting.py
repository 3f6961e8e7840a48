"""The one deadline of whatever a test waits for."""

from __future__ import annotations

from typing import Final

WAIT_S: Final = 600
"""Seconds that anything may take: only what hangs meets it, on however slow a machine. A test as a
whole has half as much again (`timeout` in `pyproject.toml`), so that this one tells where."""
