"""How commands come to the plan of what was typed: by planning, or by reading a saved plan."""

from __future__ import annotations

import argparse
from pathlib import Path

from stagemesh.cli._arguments import inputs_from, layout_flags
from stagemesh.config.catalog import Catalog
from stagemesh.config.checkpoint import CHECKPOINT_FILES
from stagemesh.config.host import read_host
from stagemesh.config.lookup import is_file
from stagemesh.errors import DiagnosticError
from stagemesh.plan.make import Made, make
from stagemesh.plan.saved import open_saved
from stagemesh.spec.diagnostic import Diagnostic


def made_from(
    namespace: argparse.Namespace, catalog: Catalog | None = None, *, anywhere: bool = False
) -> Made:
    """Make the plan of MODEL and its layout, or read it when MODEL is a file.

    A saved plan is held against this machine, unless it is only looked at: `anywhere`.
    """
    file = Path(namespace.model)
    if not is_file(file) or file.name in CHECKPOINT_FILES:
        return make(inputs_from(namespace), read_host(), catalog)
    if flags := layout_flags(namespace):
        raise DiagnosticError(
            [
                Diagnostic(
                    code="CL002",
                    message=f"`{flag}` cannot change the saved plan `{file}`",
                    help="name the model instead of the plan, or plan again with this flag",
                )
                for flag in flags
            ]
        )
    return open_saved(file, None if anywhere else read_host(), catalog)
