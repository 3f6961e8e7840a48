"""The command `stagemesh`: finds the commands, parses, runs one, and turns errors into screens.

Exit codes: 0 well, 1 the input is wrong or something failed, 2 wrong usage, 130 interrupted, 141
the reader of the output went away. A command whose 1 means something else sets `failure`. Data goes
to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, cast

from stagemesh.cli._parser import Parser, WrongUsageError, refuse_bytes
from stagemesh.errors import StagemeshError
from stagemesh.spec.command import Command
from stagemesh.spec.reference import resolve
from stagemesh.spec.registry import COMMANDS

WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
_OUTPUT_FAULTS: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT})
"""What only a failing write gives: every other file is written where its own errors are told."""
READER_GONE: Final = 141
_DEBUG: Final = "show tracebacks of errors, and everything that stages write"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never raises for what a user can do."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    namespace = argparse.Namespace(debug=False, json=False, failure=1)
    if not isinstance(sys.stdout, io.TextIOBase):
        sys.stderr.write("error[CL006]: standard output is closed\n")
        return _failure(arguments)
    try:
        code = _run(arguments, namespace)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return READER_GONE
    except OSError as error:
        if error.errno not in _OUTPUT_FAULTS:
            raise
        _forget_output()
        reason = os.strerror(error.errno).lower()
        sys.stderr.write(f"error[CL006]: standard output cannot be written: {reason}\n")
        return int(namespace.failure)
    except SystemExit as stop:  # argparse has told what is wrong, or shown the help
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return code


def _run(arguments: list[str], namespace: argparse.Namespace) -> int:
    try:
        refuse_bytes(arguments)
        parser = _parser(arguments)
        parser.parse_args(arguments, namespace)
        if namespace.debug:
            _show_log()
        run = cast("Callable[[argparse.Namespace], int]", resolve(namespace.run))
        return run(namespace)
    except WrongUsageError as error:
        _show(error, as_json="--json" in arguments)
        return WRONG_USAGE
    except StagemeshError as error:
        if namespace.debug:
            traceback.print_exc()
        _show(error, as_json=namespace.json)
        return int(namespace.failure)


def _show(error: StagemeshError, *, as_json: bool) -> None:
    from stagemesh.cli._screen import diagnostics_of, show_diagnostics  # noqa: PLC0415  when needed

    show_diagnostics(diagnostics_of(error), as_json=as_json)


def _show_log() -> None:
    from stagemesh.cli._log import show_log  # noqa: PLC0415  only when needed

    show_log()


def whole_parser() -> argparse.ArgumentParser:
    """Declare every command with its arguments, for documents and completion."""
    return _declared(COMMANDS.declarations(), with_arguments=True)


def _parser(arguments: list[str]) -> Parser:
    """Declare the command that was typed, or all of them where none was."""
    found = _typed(arguments)
    return _declared(found or COMMANDS.declarations(), with_arguments=bool(found))


def _declared(commands: Sequence[Command], *, with_arguments: bool) -> Parser:
    parser = Parser(
        prog="stagemesh",
        description="Plan and run multi-stage generative models under one small strategy file.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and stop")
    parser.add_argument("--debug", action="store_true", help=_DEBUG)
    parsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        _add(parsers, command, with_arguments=with_arguments)
    return parser


def _failure(arguments: list[str]) -> int:
    """Return what the command that was typed leaves when it fails, before it can run."""
    parser = argparse.ArgumentParser(add_help=False)
    for command in _typed(arguments):
        command.configure(parser)
    return int(parser.get_default("failure") or 1)


def _typed(arguments: list[str]) -> tuple[Command, ...]:
    """Load the command that was typed alone; the others would cost every start their parsers."""
    word = next((word for word in arguments if not word.startswith("-")), "")
    name = word.replace("-", "_")
    found = COMMANDS.load(name) if name in COMMANDS.modules() else ()
    return tuple(command for command in found if command.name == word)


def _add(
    parsers: argparse._SubParsersAction[Parser],
    command: Command,
    *,
    with_arguments: bool,
) -> None:
    parser = parsers.add_parser(
        command.name,
        help=command.summary,
        description=f"{command.summary[:1].upper()}{command.summary[1:]}.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=command.run)
    if with_arguments:
        command.configure(parser)
        parser.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help=_DEBUG,
        )


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_given: object) -> NoReturn:
        from importlib.metadata import version  # noqa: PLC0415  only when needed

        sys.stdout.write(f"stagemesh {version('stagemesh')}\n")
        parser.exit()


def _forget_output() -> None:
    """Keep the interpreter from flushing into the closed pipe again when it ends."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123  a device, no path
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
