"""The work of `stagemesh demo-checkpoint`: runs the recipes that pipelines declare."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from stagemesh.config.environment import cache_folder, check_environment
from stagemesh.errors import DiagnosticError
from stagemesh.plan.table import printable
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.reference import resolve
from stagemesh.spec.registry import MODELS


def run(options: argparse.Namespace) -> int:
    """Assemble what was asked for and print where it is."""
    malformed = check_environment()
    if malformed:
        raise DiagnosticError(malformed)
    recipes = {
        pipeline.model_type: pipeline.checkpoint_recipe
        for pipeline in MODELS.declarations()
        if pipeline.checkpoint_recipe is not None
    }
    if options.name is not None and options.name not in recipes:
        raise DiagnosticError(
            [
                Diagnostic(
                    code="MD020",
                    message=f"no demo checkpoint is called `{options.name}`",
                    help=did_you_mean(options.name, recipes),
                )
            ]
        )
    names = sorted(recipes) if options.name is None else [options.name]
    folders = {name: str(_assemble(name, recipes[name])) for name in names}
    if options.json:
        sys.stdout.write(json.dumps(folders, indent=2) + "\n")
    else:
        lines = [printable(f"{name}: {folder}") for name, folder in folders.items()]
        sys.stdout.write("\n".join([*lines, f"next: stagemesh plan {names[0]}", ""]))
    return 0


def _assemble(name: str, recipe: str) -> Path:
    """Assemble one checkpoint; whatever prevents it becomes a diagnostic."""
    folder = cache_folder() / name
    try:
        assemble = cast("Callable[..., Path]", resolve(recipe))
        return assemble(folder, progress=_tell)
    except ModuleNotFoundError as error:
        found = Diagnostic(
            code="MD021",
            message=f"checkpoint `{name}` needs a package that is not installed",
            help=str(error),
        )
    except (OSError, ValueError) as error:
        found = Diagnostic(
            code="MD022",
            message=f"checkpoint `{name}` cannot be assembled in `{folder}`",
            help=str(error),
        )
    raise DiagnosticError([found])


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
