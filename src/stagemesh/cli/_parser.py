"""The parser of a command: a flag that does not exist is a diagnostic that says what was meant.

An option that takes one value takes it once: a second one is never dropped, nor does it win.
Numbers are read as files have them. What is typed is text, and is shown without moving the cursor.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from stagemesh.cli._numbers import decimal, whole
from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic


class WrongUsageError(DiagnosticError):
    """Flags were typed that do not exist, or twice, or no text; wrong usage, unlike wrong input."""


def refuse_bytes(words: Sequence[str]) -> None:
    """Raise `WrongUsageError` for words that are no text: no file and no screen could hold them."""
    wrong = [word for word in words if any("\ud800" <= char <= "\udfff" for char in word)]
    if wrong:
        from stagemesh.config.tree import quoted  # noqa: PLC0415  only when needed

        raise WrongUsageError(
            [
                Diagnostic(
                    code="CL016",
                    message=f"argument {quoted(word)} is not UTF-8",
                    help="`?` stands for what cannot be read; type it again, or rename the file",
                )
                for word in wrong
            ]
        )


class Once(argparse.Action):
    """Stores the value of an option, as `store` does, and tells when there is a second one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Store the value; what is given again is kept for the end of the parse."""
        if option_string is not None:
            assert isinstance(parser, Parser)
            parser.see(self.dest, option_string, values)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that knows flags by their full names, and takes each value once."""

    def __init__(self, *given: object, **named: object) -> None:
        """Take what an `ArgumentParser` does."""
        self._first: dict[str, tuple[str, object]] = {}
        self._again: list[Diagnostic] = []
        super().__init__(*given, **named)  # type: ignore[arg-type]  # handed on as they are
        self.register("action", None, Once)
        self.register("action", "store", Once)
        self.register("type", int, whole)
        self.register("type", float, decimal)

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong with the words and exit; a word can hold any character."""
        from stagemesh.plan.table import printable  # noqa: PLC0415  only when needed

        super().error(printable(message))

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a word that is none of those of an argument, and name the one that is near."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from stagemesh.spec.diagnostic import nearest  # noqa: PLC0415  only when needed

            near = nearest(str(value), map(str, action.choices or ()))
            if near is not None:
                error.message += f"; did you mean '{near}'?"
            raise

    def see(self, dest: str, flag: str, value: object) -> None:
        """Note that an option was typed."""
        if dest not in self._first:
            self._first[dest] = (flag, value)
            return
        from stagemesh.cli._repeated import given_again  # noqa: PLC0415  only when needed

        self._again.append(given_again(self._first[dest], (flag, value)))

    def parse_known_args(  # type: ignore[override]  # the stubs have an overload for each default
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; raises `WrongUsageError` for flags that do not exist, or are given again."""
        words = list(args or ())
        self._first, self._again = {}, []
        parsed, left = super().parse_known_args(words, namespace)
        wrong = self._again
        unknown = [word for word in left if word.startswith("-") and word.strip("-")]
        if unknown:
            from stagemesh.cli._unknown import unknown_flags  # noqa: PLC0415  only when needed

            flags = tuple(self._option_string_actions)
            wrong = [*wrong, *unknown_flags(unknown, words, flags)]
        if wrong:
            raise WrongUsageError(wrong)
        return parsed, left
