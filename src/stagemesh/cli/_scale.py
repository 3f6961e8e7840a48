"""The work of `stagemesh scale`: it ends when new replicas serve and those that leave are gone."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from stagemesh.cli._control import ask, server_of
from stagemesh.cli._screen import columns, show_json
from stagemesh.cli._state import state_text

_WAIT_S: Final = 1800.0
"""More than a server's own deadlines for loading and draining, which end the wait before."""


def run(namespace: argparse.Namespace) -> int:
    """Ask the server, and show what it has then."""
    body = {"stage": namespace.stage, "replicas": namespace.replicas}
    state = ask(server_of(namespace), "/scale", body, timeout_s=_WAIT_S)
    if namespace.json:
        show_json(state)
    else:
        sys.stdout.write(f"{state_text(state, columns(sys.stdout))}\n")
    return 0
