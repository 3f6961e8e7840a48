"""Finds a checkpoint and tells its model from its own configuration, by exact keys only."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stagemesh.config.check import check
from stagemesh.config.environment import cache_folder
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.tree import quoted
from stagemesh.errors import DiagnosticError
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import CheckpointConfigs, JsonObject, PipelineConfig

CONFIG_FILE: Final = "config.json"
_DIFFUSERS_FILE: Final = "model_index.json"
_WEIGHTS: Final = "*.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint folder that was understood."""

    path: Path
    """The folder, absolute."""
    config: JsonObject
    """Its `config.json`."""
    config_hash: str
    """SHA-256 of that file, as hexadecimal text."""
    facts: Mapping[str, StageFacts]
    """What it says about each stage, by stage name; every stage of the pipeline has an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile(CheckpointConfigs):
    """A checkpoint's configuration file as it was read."""

    folder: Path
    """The checkpoint's folder, absolute."""
    config: JsonObject
    """The content."""
    digest: str
    """SHA-256 of the file."""

    @property
    def root(self) -> JsonObject:
        """The content."""
        return self.config

    def component(self, folder: str) -> JsonObject:
        """The content of the file in a folder of the checkpoint."""
        try:
            parsed: object = json.loads((self.folder / folder / CONFIG_FILE).read_bytes())
        except FileNotFoundError:
            return {}
        if not isinstance(parsed, Mapping):
            message = f"`{folder}/{CONFIG_FILE}` must hold an object"
            raise TypeError(message)
        return parsed

    @property
    def origin(self) -> Origin:
        """The file as a place."""
        return Origin(layer=Layer.PIPELINE, source=str(self.folder / CONFIG_FILE))


def find_folder(model: str, recipes: Collection[str], run: Run) -> Path | None:
    """Return the folder of `model`: an existing folder, else a checkpoint in the cache.

    `recipes` names the pipelines whose checkpoint can be assembled.
    """
    folder = Path(model)
    try:
        if model and folder.is_dir():
            return folder.resolve()
        is_file = bool(model) and folder.exists()
    except (OSError, ValueError):  # too long, or a NUL: no folder has such a name
        is_file = False
    origin = Origin(layer=Layer.GLOBAL, source="MODEL")
    if is_file:
        run.tell("MD002", f"model {quoted(model)} is a file, expected a folder", origin)
        return None
    try:
        cache = cache_folder()
    except DiagnosticError as error:
        run.findings.extend(error.diagnostics)
        return None
    assembled = _assembled(cache)
    if model in assembled:
        return (cache / model).resolve()
    have = ", ".join(f"`{name}`" for name in assembled) or "none"
    help_text = f"give an existing folder, or an assembled checkpoint (in `{cache}`: {have})"
    absent = [name for name in recipes if name not in assembled]
    if absent:
        names = ", ".join(f"`{name}`" for name in sorted(absent))
        help_text += f"; `stagemesh demo-checkpoint` assembles {names}"
    message = f"model {quoted(model)} is neither a folder nor an assembled checkpoint"
    run.tell("MD001", message, origin, help_text)
    return None


def _assembled(cache: Path) -> list[str]:
    try:
        folders = [item.name for item in cache.iterdir() if item.is_dir()]
    except OSError:  # no cache yet
        return []
    return sorted(name for name in folders if not name.startswith("."))


def read_config(folder: Path, run: Run) -> ConfigFile | None:
    """Read the checkpoint's `config.json`; every way to fail has its own message."""
    file = folder / CONFIG_FILE
    origin = Origin(layer=Layer.PIPELINE, source=str(file))
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        _tell_no_config(folder, run)
        return None
    except OSError as error:
        run.tell("MD005", f"`{CONFIG_FILE}` cannot be read: {error.strerror}", origin)
        return None
    try:
        parsed: object = json.loads(content)
    except json.JSONDecodeError as error:
        place = dataclasses.replace(origin, line=error.lineno, column=error.colno)
        run.tell("MD006", f"`{CONFIG_FILE}` is not valid JSON: {error.msg.lower()}", place)
        return None
    except (ValueError, RecursionError):  # no UTF-8 text, or beyond what the parser takes
        run.tell("MD006", f"`{CONFIG_FILE}` is not valid JSON", origin)
        return None
    if not isinstance(parsed, Mapping):
        run.tell("MD006", f"`{CONFIG_FILE}` must hold an object", origin)
        return None
    digest = hashlib.sha256(content).hexdigest()
    return ConfigFile(folder=folder, config=parsed, digest=digest)


def _tell_no_config(folder: Path, run: Run) -> None:
    origin = Origin(layer=Layer.PIPELINE, source=str(folder))
    if (folder / _DIFFUSERS_FILE).exists():
        message = f"checkpoints with `{_DIFFUSERS_FILE}` are not supported yet"
        run.tell("MD007", message, origin, f"`{CONFIG_FILE}` was looked for")
        return
    try:
        empty = not any(folder.iterdir())
    except OSError as error:
        run.tell("MD005", f"checkpoint folder cannot be read: {error.strerror}", origin)
        return
    what = "is empty" if empty else f"holds no `{CONFIG_FILE}`"
    code = "MD003" if empty else "MD004"
    help_text = f"a checkpoint folder has a `{CONFIG_FILE}` that names its model"
    run.tell(code, f"checkpoint folder {what}", origin, help_text)


def read_checkpoint(file: ConfigFile, pipeline: PipelineConfig, run: Run) -> Checkpoint:
    """Add what the pipeline reads out of the configuration, and the sizes of the weight files."""
    facts = _facts(file, pipeline, run)
    shared = [stage.model_subdir for stage in pipeline.stages]
    for stage in pipeline.stages:
        known = facts.get(stage.model_stage, StageFacts())
        if known.weight_bytes is None and shared.count(stage.model_subdir) == 1:
            size = _weight_bytes(file.folder / stage.model_subdir, run)
            known = dataclasses.replace(known, weight_bytes=size)
        facts[stage.model_stage] = known
    return Checkpoint(path=file.folder, config=file.config, config_hash=file.digest, facts=facts)


def _facts(file: ConfigFile, pipeline: PipelineConfig, run: Run) -> dict[str, StageFacts]:
    if pipeline.facts is None:
        return {}
    try:
        read = dict(pipeline.facts(file))
    except Exception as error:  # noqa: BLE001  a model is a plug-in: what it trips over is the file's
        message = f"`{CONFIG_FILE}` has a value that `{pipeline.model_type}` cannot use"
        reason = f"reading it failed with `{type(error).__name__}: {error}`"
        run.tell("MD010", message, file.origin, reason)
        return {}
    for name, facts in read.items():
        place = Place(located=Nowhere(source=file.origin.source), label=name)
        checked = check(StageFacts, dataclasses.asdict(facts), place)
        run.findings.extend(
            dataclasses.replace(found, code="MD010", origin=file.origin)
            for found in checked.diagnostics
        )
        if checked.diagnostics:
            read[name] = StageFacts()
    return read


def _weight_bytes(folder: Path, run: Run) -> int | None:
    """Add up the weight files below `folder`; `None` when there are none."""
    sizes: list[int] = []
    for file in folder.rglob(_WEIGHTS):
        try:
            sizes.append(file.stat().st_size)
        except OSError as error:
            origin = Origin(layer=Layer.PIPELINE, source=str(file))
            run.tell("MD011", f"weight file cannot be read: {error.strerror}", origin)
    return sum(sizes) if sizes else None
