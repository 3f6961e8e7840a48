"""Finds a checkpoint and reads what it says about itself, by exact keys only."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Final

from stagemesh.config.check import check
from stagemesh.config.environment import cache_folder
from stagemesh.config.json_file import JsonFile, read_json_file
from stagemesh.config.lookup import is_name, near_path, path_help
from stagemesh.config.opened import open_file
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.tree import quoted
from stagemesh.config.weights import has_other_weights, weights_in
from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import nearest
from stagemesh.spec.facts import StageFacts, WeightFiles
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    JsonObject,
    PipelineConfig,
    StagePipelineConfig,
)

CONFIG_FILE: Final = "config.json"
INDEX_FILE: Final = "model_index.json"
"""What a checkpoint of several components has instead: it names each of them and its class."""
CHECKPOINT_FILES: Final = (CONFIG_FILE, INDEX_FILE)
"""Names of the files that describe a checkpoint."""


@frozen
class Checkpoint:
    """A checkpoint folder that was understood."""

    path: Path
    """The folder, absolute."""
    config: JsonObject
    """The file that describes it: its `config.json` or its `model_index.json`."""
    config_hash: str
    """SHA-256 of that file, or of all configuration files that were read, as hexadecimal text."""
    facts: Mapping[str, StageFacts]
    """What it says about each stage, by stage name; every stage of the pipeline has an entry."""
    skipped: tuple[str, ...] = ()
    """What could not be found out, and why."""


@frozen
class ConfigFile:
    """What describes a checkpoint at its root: `config.json`, `model_index.json`, or both."""

    folder: Path
    """The checkpoint's folder, absolute."""
    config: JsonObject
    """The content of the first; empty where there is none."""
    digest: str
    """SHA-256 of the file, or of the digests of both."""
    index: JsonObject = field(default_factory=dict)
    """The content of the second; empty where there is none."""

    def name_for(self, pipeline: PipelineConfig | None = None) -> str:
        """Name of the file that a pipeline reads; without one, of the first that says something."""
        takes_index = pipeline is not None and pipeline.diffusers_class_names
        return INDEX_FILE if self.index and (takes_index or not self.config) else CONFIG_FILE

    def root_of(self, pipeline: PipelineConfig) -> JsonObject:
        """The content of the file that a pipeline reads."""
        return self.index if self.name_for(pipeline) == INDEX_FILE else self.config

    def origin_for(self, pipeline: PipelineConfig) -> Origin:
        """The file that a pipeline reads, as a place."""
        return Origin(layer=Layer.PIPELINE, source=str(self.folder / self.name_for(pipeline)))

    @property
    def origin(self) -> Origin:
        """The first file that says something, as a place."""
        return Origin(layer=Layer.PIPELINE, source=str(self.folder / self.name_for()))


class _Files(CheckpointConfigs):
    """The files of a checkpoint as a pipeline reads them, and what it read of them."""

    def __init__(self, file: ConfigFile, pipeline: PipelineConfig, run: Run) -> None:
        self._file = file
        self._root = file.root_of(pipeline)
        self._run = run
        self._digests: dict[str, str] = {}
        self.skipped: dict[str, None] = {}

    @property
    def root(self) -> JsonObject:
        """The file that describes the checkpoint."""
        return self._root

    def component(self, folder: str) -> JsonObject:
        """The content of the file in a folder of the checkpoint."""
        name = str(PurePosixPath(folder, CONFIG_FILE))
        found = read_json_file(self._file.folder / name, name)
        self._digests[name] = "absent" if found is None else found.digest
        return {} if found is None else found.content

    def weights(self, folder: str) -> WeightFiles | None:
        """What the weight files in a folder amount to."""
        found = weights_in(self._file.folder, folder, self._run)
        if found is None and has_other_weights(self._file.folder / folder):
            self.skipped[f"weights in `{folder}`: they are no safetensors files"] = None
        return found

    @property
    def digest(self) -> str:
        """SHA-256 of the root, or of the digests of all files that were read.

        A component without a file counts as well: one that appears later is a change.
        """
        return _combined(self._file.digest, self._digests)


def _combined(first: str, others: Mapping[str, str]) -> str:
    if not others:
        return first
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(others.items()))
    return hashlib.sha256(f"{first}\n{lines}".encode()).hexdigest()


def find_folder(
    model: str, recipes: Collection[str], run: Run, argument: str = "MODEL"
) -> Path | None:
    """Return the folder of `model`: an existing folder, else a checkpoint in the cache.

    `recipes` names the pipelines whose checkpoint can be assembled, `argument` is what messages
    call that which gives the model.
    """
    folder = Path(model)
    try:
        if model and folder.is_dir():
            return folder.resolve()
        is_file = bool(model) and folder.exists()
    except (OSError, ValueError):  # too long, or a NUL: no folder has such a name
        is_file = False
    origin = Origin(layer=Layer.GLOBAL, source=argument)
    if is_file:
        message = f"model {quoted(model)} is a file, expected a folder"
        run.tell("MD002", message, origin, _meant_by_file(folder))
        return None
    try:
        cache = cache_folder()
    except DiagnosticError as error:
        run.findings.extend(error.diagnostics)
        return None
    assembled = _assembled(cache)
    if model in assembled:
        return (cache / model).resolve()
    absent = [name for name in recipes if name not in assembled]
    message = f"model {quoted(model)} is neither a folder nor an assembled checkpoint"
    run.tell("MD001", message, origin, _meant_by_name(model, cache, assembled, absent))
    return None


def _meant_by_file(file: Path) -> str | None:
    """Say what a file was meant to be: the folder around it, or a plan to be run."""
    if any((file.parent / name).is_file() for name in CHECKPOINT_FILES):
        return f"name the folder that holds it: {quoted(file.parent, 120)}"
    if file.is_file() and open_file(file).begins_like_a_plan:
        shown = quoted(file, 60).strip("`")
        return f"it is a saved plan: `stagemesh run {shown}` runs it, `explain` and `diff` read it"
    return None


def _meant_by_name(model: str, cache: Path, assembled: list[str], absent: list[str]) -> str:
    """Say what was meant by a name or path at which there is no checkpoint."""
    near = nearest(model, [*assembled, *absent])
    if near is None:
        near = near_path(model, folders=True)
    meant = "" if near is None else f"did you mean {quoted(near, 80)}? "
    if near is None and model and not is_name(model):
        meant = f"{path_help(model, folders=True)}; "
    have = ", ".join(f"`{name}`" for name in assembled) or "none"
    told = f"{meant}give an existing folder, or an assembled checkpoint (in `{cache}`: {have})"
    if absent:
        names = ", ".join(f"`{name}`" for name in sorted(absent))
        told += f"; `stagemesh demo-checkpoint` assembles {names}"
    return told


def _assembled(cache: Path) -> list[str]:
    try:
        folders = [item.name for item in cache.iterdir() if item.is_dir()]
    except OSError:  # no cache yet
        return []
    return sorted(name for name in folders if not name.startswith("."))


def read_config(folder: Path, run: Run) -> ConfigFile | None:
    """Read what describes the checkpoint; every way to fail has its own message."""
    found: dict[str, JsonFile] = {}
    is_sound = True
    for name in CHECKPOINT_FILES:
        try:
            read = read_json_file(folder / name, name)
        except DiagnosticError as error:
            run.findings.extend(error.diagnostics)
            is_sound = False
            continue
        if read is not None:
            found[name] = read
    if not is_sound:
        return None
    if not found:
        _tell_no_config(folder, run)
        return None
    first, *others = found
    return ConfigFile(
        folder=folder,
        config=found[CONFIG_FILE].content if CONFIG_FILE in found else {},
        index=found[INDEX_FILE].content if INDEX_FILE in found else {},
        digest=_combined(found[first].digest, {name: found[name].digest for name in others}),
    )


def _tell_no_config(folder: Path, run: Run) -> None:
    origin = Origin(layer=Layer.PIPELINE, source=str(folder))
    try:
        empty = not any(folder.iterdir())
    except OSError as error:
        run.tell("MD005", f"checkpoint folder cannot be read: {error.strerror}", origin)
        return
    what = "is empty" if empty else f"holds no `{CONFIG_FILE}` and no `{INDEX_FILE}`"
    code = "MD003" if empty else "MD004"
    help_text = (
        f"a checkpoint folder has a `{CONFIG_FILE}`, or a `{INDEX_FILE}`, that names its model"
    )
    run.tell(code, f"checkpoint folder {what}", origin, help_text)


def read_checkpoint(file: ConfigFile, pipeline: PipelineConfig, run: Run) -> Checkpoint:
    """Add what the pipeline reads out of the configuration, and the sizes of the weight files."""
    files = _Files(file, pipeline, run)
    facts = _facts(files, file.origin_for(pipeline), pipeline, run)
    shared = [stage.model_subdir for stage in pipeline.stages if not stage.weight_folders]
    for stage in pipeline.stages:
        known = facts.get(stage.model_stage, StageFacts())
        is_told = known.weight_bytes is not None or known.component_bytes
        if not is_told and (stage.weight_folders or shared.count(stage.model_subdir) == 1):
            known = _weighed(files, stage, known)
        facts[stage.model_stage] = known
    return Checkpoint(
        path=file.folder,
        config=files.root,
        config_hash=files.digest,
        facts=facts,
        skipped=tuple(files.skipped),
    )


def _weighed(files: _Files, stage: StagePipelineConfig, known: StageFacts) -> StageFacts:
    """Add what the weight files of a stage amount to; what is not there has no size."""
    folders = stage.weight_folders or (stage.model_subdir,)
    read = {folder: files.weights(folder) for folder in folders}
    found = {folder: each for folder, each in read.items() if each is not None}
    present = [each.num_bytes for each in found.values() if each.is_present]
    sizes = {folder: each.num_bytes for folder, each in found.items()}
    return dataclasses.replace(
        known,
        component_bytes=sizes if stage.weight_folders else {},
        weight_bytes=sum(present) if present else None,
        weight_dtype=known.weight_dtype or next((each.dtype for each in found.values()), None),
    )


def _facts(
    files: _Files, origin: Origin, pipeline: PipelineConfig, run: Run
) -> dict[str, StageFacts]:
    if pipeline.facts is None:
        return {}
    try:
        read = dict(pipeline.facts(files))
    except DiagnosticError as error:
        run.findings.extend(
            found if found.origin is not None else dataclasses.replace(found, origin=origin)
            for found in error.diagnostics
        )
        return {}
    except Exception as error:  # noqa: BLE001  a model is a plug-in: what it trips over is the file's
        name = PurePosixPath(origin.source).name
        message = f"`{name}` has a value that `{pipeline.model_type}` cannot use"
        reason = f"reading it failed with `{type(error).__name__}: {error}`"
        run.tell("MD010", message, origin, reason)
        return {}
    for name, facts in read.items():
        place = Place(located=Nowhere(source=origin.source), label=name)
        checked = check(StageFacts, dataclasses.asdict(facts), place)
        run.findings.extend(
            dataclasses.replace(found, code="MD010", origin=origin) for found in checked.diagnostics
        )
        if checked.diagnostics:
            read[name] = StageFacts()
    return read
