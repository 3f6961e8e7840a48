"""The work of `stagemesh top`: a table that is drawn anew every second until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stagemesh.cli._control import ask, server_of
from stagemesh.cli._screen import columns, show_json
from stagemesh.cli._state import state_text

_WAIT_S: Final = 10.0
_PERIOD_S: Final = 1.0


def run(namespace: argparse.Namespace) -> int:
    """Show the state, once or until Ctrl-C or the end of the server."""
    server = server_of(namespace)
    state = _state(server)
    if namespace.json:
        show_json(state)
    elif namespace.once or not sys.stdout.isatty():
        sys.stdout.write(f"{state_text(state, columns(sys.stdout))}\n")
    else:
        _watch(server, state)
    return 0


def _watch(server: Path, state: Mapping[str, Any]) -> None:
    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(Text(state_text(state, console.width)), refresh=True)
                time.sleep(_PERIOD_S)
                state = _state(server)
        except KeyboardInterrupt:
            return  # the way to leave it


def _state(server: Path) -> Mapping[str, Any]:
    return ask(server, "/state", timeout_s=_WAIT_S)
