"""Finds a checkpoint and reads what it says about itself, by exact keys only."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from stagemesh.config.check import check
from stagemesh.config.environment import cache_folder
from stagemesh.config.json_file import read_json_file
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.tree import quoted
from stagemesh.config.weights import has_other_weights, weights_in
from stagemesh.errors import DiagnosticError
from stagemesh.spec.facts import StageFacts, WeightFiles
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


class ConfigFile(CheckpointConfigs):
    """A checkpoint's configuration: what it has at its root, and its components on demand."""

    def __init__(self, folder: Path, run: Run) -> None:
        """Read the files at the root of `folder`, an absolute path; what is wrong goes to `run`."""
        self.folder = folder
        self.skipped: list[str] = []
        self._run = run
        self._digests: dict[str, str] = {}
        self._absent: set[str] = set()
        config, index = (self._at_root(name) for name in (CONFIG_FILE, INDEX_FILE))
        self.is_found = config is not None or index is not None
        self.config: JsonObject = config or {}
        self.index: JsonObject = index or {}
        self._root = self.config if config is not None else self.index
        self._name = CONFIG_FILE if config is not None else INDEX_FILE

    def _at_root(self, name: str) -> JsonObject | None:
        try:
            return self._read(name)
        except DiagnosticError as error:
            self._run.findings.extend(error.diagnostics)
            return None

    def _read(self, name: str) -> JsonObject | None:
        found = read_json_file(self.folder / name, name)
        if found is None:
            self._absent.add(name)
            return None
        self._digests[name] = found.digest
        return found.content

    def root_of(self, pipeline: PipelineConfig) -> JsonObject:
        """The file at the root that a pipeline reads."""
        return self.index if pipeline.diffusers_class_names and self.index else self._root

    def choose_root(self, pipeline: PipelineConfig) -> None:
        """Take the file as root that the pipeline reads."""
        self._root = self.root_of(pipeline)
        self._name = INDEX_FILE if self._root is self.index else CONFIG_FILE

    @property
    def root(self) -> JsonObject:
        """The file that describes the checkpoint."""
        return self._root

    def component(self, folder: str) -> JsonObject:
        """The content of the file in a folder of the checkpoint."""
        return self._read(str(PurePosixPath(folder, CONFIG_FILE))) or {}

    def weights(self, folder: str) -> WeightFiles | None:
        """What the weight files in a folder amount to."""
        found = weights_in(self.folder, folder, self._run)
        if found is None and has_other_weights(self.folder / folder):
            self.skipped.append(f"weights in `{folder}`: they are no safetensors files")
        return found

    @property
    def digest(self) -> str:
        """SHA-256 of the one file that was read, or of the names and digests of several.

        A component without a file counts as well: one that appears later is a change.
        """
        absent = self._absent - {CONFIG_FILE, INDEX_FILE}
        if len(self._digests) == 1 and not absent:
            return next(iter(self._digests.values()))
        said = {**dict.fromkeys(absent, "absent"), **self._digests}
        lines = "".join(f"{name} {digest}\n" for name, digest in sorted(said.items()))
        return hashlib.sha256(lines.encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name of the file that describes the checkpoint."""
        return self._name

    @property
    def origin(self) -> Origin:
        """That file as a place."""
        return Origin(layer=Layer.PIPELINE, source=str(self.folder / self._name))


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
    """Read what describes the checkpoint; every way to fail has its own message."""
    before = len(run.findings)
    file = ConfigFile(folder, run)
    if len(run.findings) > before:
        return None
    if not file.is_found:
        _tell_no_config(folder, run)
        return None
    return file


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
    file.choose_root(pipeline)
    facts = _facts(file, pipeline, run)
    shared = [stage.model_subdir for stage in pipeline.stages if not stage.weight_folders]
    for stage in pipeline.stages:
        known = facts.get(stage.model_stage, StageFacts())
        is_told = known.weight_bytes is not None or known.component_bytes
        if not is_told and shared.count(stage.model_subdir) <= 1:
            known = _weighed(file, stage, known)
        facts[stage.model_stage] = known
    return Checkpoint(
        path=file.folder,
        config=file.root,
        config_hash=file.digest,
        facts=facts,
        skipped=tuple(dict.fromkeys(file.skipped)),
    )


def _weighed(file: ConfigFile, stage: StagePipelineConfig, known: StageFacts) -> StageFacts:
    """Add what the weight files of a stage amount to; what is not there has no size."""
    folders = stage.weight_folders or (stage.model_subdir,)
    read = {folder: file.weights(folder) for folder in folders}
    found = {folder: files for folder, files in read.items() if files is not None}
    present = [files.num_bytes for files in found.values() if files.is_present]
    return dataclasses.replace(
        known,
        component_bytes={folder: files.num_bytes for folder, files in found.items()}
        if stage.weight_folders
        else {},
        weight_bytes=sum(present) if present else None,
        weight_dtype=known.weight_dtype
        or next((files.dtype for files in found.values() if files.dtype), None),
    )


def _facts(file: ConfigFile, pipeline: PipelineConfig, run: Run) -> dict[str, StageFacts]:
    if pipeline.facts is None:
        return {}
    try:
        read = dict(pipeline.facts(file))
    except DiagnosticError as error:
        for found in error.diagnostics:
            run.findings.append(
                found if found.origin else dataclasses.replace(found, origin=file.origin)
            )
        return {}
    except Exception as error:  # noqa: BLE001  a model is a plug-in: what it trips over is the file's
        message = f"`{file.name}` has a value that `{pipeline.model_type}` cannot use"
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
