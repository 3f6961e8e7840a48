"""The contract of a command of the command line, exported as `COMMAND` by `cli/<name>.py`.

The declaration must be cheap to import, since `--help` imports every one; the work is a reference.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from stagemesh.spec.frozen import frozen


@frozen
class Command:
    """The declaration of a command."""

    name: str
    """What the user types; underscores of the file's name are hyphens."""
    summary: str
    """One line for `--help`."""
    configure: Callable[[argparse.ArgumentParser], None]
    """Adds the command's arguments."""
    run: str
    """Reference of a function `(argparse.Namespace) -> int` that returns the exit code."""
