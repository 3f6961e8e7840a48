"""The parser of a command: a flag that does not exist is a diagnostic that says what was meant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from stagemesh.errors import DiagnosticError


class UnknownFlagError(DiagnosticError):
    """Flags were typed that do not exist; wrong usage, unlike wrong input."""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that knows flags by their full names alone."""

    def parse_known_args(  # type: ignore[override]  # the stubs have an overload for each default
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; raises `UnknownFlagError` for flags that do not exist."""
        words = list(args or ())
        parsed, left = super().parse_known_args(words, namespace)
        unknown = [word for word in left if word.startswith("-") and word.strip("-")]
        if unknown:
            from stagemesh.cli._unknown import unknown_flags  # noqa: PLC0415  only when needed

            flags = tuple(self._option_string_actions)
            raise UnknownFlagError(unknown_flags(unknown, words, flags))
        return parsed, left
