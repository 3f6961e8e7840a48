"""The work of `stagemesh list`."""

from __future__ import annotations

import argparse

from stagemesh.cli._listing import show_kind


def run(namespace: argparse.Namespace) -> int:
    """Print what is installed of one kind, by name."""
    kind: str = namespace.kind
    show_kind(kind, f"`stagemesh list {kind} --json` tells more", as_json=namespace.json)
    return 0
