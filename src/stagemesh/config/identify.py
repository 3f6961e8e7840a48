"""Tells which model a checkpoint is of: the deploy file's word, else exact keys of its own file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.checkpoint import CONFIG_FILE, ConfigFile
from stagemesh.config.place import Place, Run
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import did_you_mean


def named_model(name: str, place: Place, catalog: Catalog, run: Run) -> Model | None:
    """Return the model whose pipeline a deploy file names."""
    found = [model for model in catalog.models if model.pipeline.model_type == name]
    if not found:
        known = [model.pipeline.model_type for model in catalog.models]
        message = f"unknown pipeline {quoted(name)}"
        run.tell("MD012", message, place.origin, did_you_mean(name, known))
        return None
    return found[0]


def model_of(file: ConfigFile, catalog: Catalog, run: Run) -> Model | None:
    """Return the model that a checkpoint's `model_type`, else its `architectures`, stand for."""
    model_type = file.config.get("model_type")
    architectures = file.config.get("architectures")
    listed = list(architectures) if isinstance(architectures, list) else []
    found = [model for model in catalog.models if model.pipeline.model_type == model_type]
    found = found or [
        model
        for model in catalog.models
        if any(name in model.pipeline.hf_architectures for name in listed)
    ]
    if len(found) == 1:
        return found[0]
    looked = (
        f"looked at `model_type` ({_shown([model_type])}) and `architectures` ({_shown(listed)})"
    )
    names = [model.pipeline.model_type for model in found or catalog.models]
    if found:
        message = f"`{CONFIG_FILE}` fits several models: {_shown(names)}"
        help_text = f"{looked}; choose one with `pipeline:` in a deploy file"
        run.tell("MD009", message, file.origin, help_text)
    else:
        help_text = f"{looked}; known models: {_shown(names)}"
        run.tell("MD008", f"`{CONFIG_FILE}` names no known model", file.origin, help_text)
    return None


def _shown(names: Sequence[object] | Iterable[object]) -> str:
    return ", ".join(quoted(name) for name in names if name is not None) or "absent"
