"""The work of `stagemesh schema`."""

from __future__ import annotations

import argparse
import sys

from stagemesh.config.catalog import Catalog
from stagemesh.config.jsonschema import schema_text


def run(namespace: argparse.Namespace) -> int:
    """Print the schema for what is installed; without third parties it is the committed one."""
    sys.stdout.write(schema_text(namespace.kind, Catalog.installed()))
    return 0
