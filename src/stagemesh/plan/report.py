"""Where the steps of one planning leave what they found."""

from __future__ import annotations

from collections.abc import Iterable

from stagemesh.spec.diagnostic import Diagnostic


class Report:
    """Collects diagnostics and skipped checks in the order they were found, each once."""

    def __init__(self, skipped: Iterable[str] = ()) -> None:
        """Start with what was skipped before."""
        self._found: dict[Diagnostic, None] = {}
        self._skipped: dict[str, None] = dict.fromkeys(skipped)

    def add(self, *diagnostics: Diagnostic) -> None:
        """Keep diagnostics."""
        self._found.update(dict.fromkeys(diagnostics))

    def skip(self, *sentences: str) -> None:
        """Keep that checks could not be made."""
        self._skipped.update(dict.fromkeys(sentences))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All diagnostics."""
        return tuple(self._found)

    @property
    def skipped(self) -> tuple[str, ...]:
        """All sentences about skipped checks."""
        return tuple(self._skipped)

    @property
    def failed(self) -> bool:
        """Whether one of the diagnostics is an error."""
        return any(diagnostic.is_error for diagnostic in self._found)
