"""A saved plan, read and held against the checkpoint and the machine it would run on."""

from __future__ import annotations

from pathlib import Path

from stagemesh.config.catalog import Catalog
from stagemesh.config.checkpoint import find_folder, read_config
from stagemesh.config.host import Host
from stagemesh.config.place import Run
from stagemesh.plan.make import Made
from stagemesh.plan.save import drift, from_json
from stagemesh.plan.values import CheckpointPlan, Plan
from stagemesh.spec.diagnostic import Diagnostic


def open_saved(file: Path, host: Host, catalog: Catalog | None = None) -> Made:
    """Read the plan in `file`; what speaks against running it here is told at once."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is no text"
        message = f"the saved plan `{file}` cannot be read: {reason.lower()}"
        return _refused(Diagnostic(code="PL048", message=message))
    plan = from_json(text, str(file))
    if not isinstance(plan, Plan):
        return _refused(*plan)
    run = Run()
    folder = find_folder(plan.checkpoint.path, (), run)
    config = None if folder is None else read_config(folder, run)
    if config is None:
        return _refused(*run.findings)
    found = drift(
        plan,
        CheckpointPlan(path=str(config.folder), config_hash=config.digest),
        host,
        Catalog.installed() if catalog is None else catalog,
    )
    return _refused(*found) if found else Made(plan=plan, diagnostics=(), documents=())


def _refused(*found: Diagnostic) -> Made:
    return Made(plan=None, diagnostics=found, documents=())
