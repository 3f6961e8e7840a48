"""Checks deploy and strategy files without any checkpoint.

Where the pipeline is known, by the file's own word or by the caller's, stages, edges and the merged
whole are checked against it; else the form alone is. The merged whole of a sound file is kept for
the planner, which knows what stages and engines take. A saved plan is recognised and left to it,
too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from stagemesh.config.axes_off import spoils
from stagemesh.config.bases import DeployFiles, pipeline_named
from stagemesh.config.catalog import Catalog
from stagemesh.config.deploy import PLAN_KEYS, read_deploy
from stagemesh.config.document import Document
from stagemesh.config.fields import stage_fields
from stagemesh.config.identify import named_model
from stagemesh.config.opened import OpenedFile, open_file
from stagemesh.config.patch import Patch
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.settings import Settings
from stagemesh.config.settle import settle
from stagemesh.config.stages import Stages
from stagemesh.config.strategy import is_strategy, read_strategy
from stagemesh.config.topology import topology_findings
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer
from stagemesh.spec.pipeline import PipelineConfig

_Whole: TypeAlias = tuple[PipelineConfig | None, list[Settings]]
"""The pipeline of a file, where it is known, and what the file says in all for each platform."""


class FileKind(Enum):
    """What a file holds."""

    DEPLOY = "deploy"
    """How the stages of a pipeline run."""
    STRATEGY = "strategy"
    """Parallel axes laid over stages."""
    PLAN = "plan"
    """A saved plan."""


@frozen
class Merged:
    """What a file says in all, on one platform."""

    pipeline: PipelineConfig
    """The pipeline that it was read for."""
    settings: Settings
    """Its values, each of its type."""


@frozen
class CheckedFile:
    """What was found in one file."""

    path: str
    """The file as it was given."""
    opened: OpenedFile | None = field(default=None, repr=False)
    """What was read of it; a pipe cannot be read a second time."""
    kind: FileKind | None
    """What it holds; `None` when it cannot be read."""
    pipeline: str | None = None
    """Pipeline that it was checked against; `None` where the form alone was checked."""
    merged: tuple[Merged, ...] = field(default=(), repr=False)
    """What it says where no section holds, and on each platform that it has a section for; nothing
    where the form alone was checked, or is wrong."""
    not_runnable: tuple[str, ...] = ()
    """Why the saved plan that it holds cannot be run yet."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Everything found, warnings too."""
    documents: tuple[Document, ...] = ()
    """The file and those it lies on, for showing the lines at fault."""


@frozen
class CheckedFiles:
    """What was found in several files."""

    files: tuple[CheckedFile, ...]
    """Each of them, in the order in which they were given."""
    problems: tuple[Diagnostic, ...] = ()
    """What is wrong with the question itself: the pipeline that was named."""

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All findings, in the order of the files; one in a shared file is told once."""
        found = (diagnostic for file in self.files for diagnostic in file.diagnostics)
        return tuple(dict.fromkeys((*self.problems, *found)))

    @property
    def documents(self) -> tuple[Document, ...]:
        """All that was read."""
        return tuple(document for file in self.files for document in file.documents)


def check_files(
    paths: Iterable[str | Path], pipeline: str | None = None, catalog: Catalog | None = None
) -> CheckedFiles:
    """Check files; `pipeline` is that of files which do not name theirs."""
    catalog = Catalog.installed() if catalog is None else catalog
    run = Run()
    known = None
    if pipeline is not None:
        place = Place(located=Nowhere(source="--pipeline", layer=Layer.GLOBAL))
        known = _pipeline(pipeline, place, catalog, run)
    checker = _Checker(catalog, known)
    return CheckedFiles(
        files=tuple(map(checker.check, _opened(paths))), problems=tuple(run.findings)
    )


def _opened(paths: Iterable[str | Path]) -> Iterator[OpenedFile]:
    """Open files; one that is given twice is read once."""
    known: dict[str, OpenedFile] = {}
    for name in map(str, paths):
        known[name] = known.get(name) or open_file(name)
        yield known[name]


def _pipeline(name: str, place: Place, catalog: Catalog, run: Run) -> PipelineConfig | None:
    """Return the pipeline of that name, when there is one that can be planned."""
    model = named_model(name, place, catalog, run)
    if model is None:
        return None
    wrong = topology_findings(model.pipeline, catalog, stage_fields(catalog))
    run.findings.extend(wrong)
    return None if wrong else model.pipeline


class _Checker:
    def __init__(self, catalog: Catalog, pipeline: PipelineConfig | None) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._fields = stage_fields(catalog)

    def check(self, opened: OpenedFile) -> CheckedFile:
        if opened.begins_like_a_plan:
            return CheckedFile(path=opened.name, opened=opened, kind=FileKind.PLAN)
        run = Run(partial=True)
        deploys = DeployFiles(self._catalog, run)
        documents = deploys.open(opened, opened.name)
        kind = kind_of(documents)
        if kind is FileKind.PLAN:
            return CheckedFile(path=opened.name, opened=opened, kind=kind)
        pipeline, wholes = None, list[Settings]()
        if kind is FileKind.DEPLOY:
            pipeline, wholes = self._check_deploy(deploys, documents, run)
        elif kind is FileKind.STRATEGY:
            pipeline, wholes = self._check_strategy(documents[-1], run)
        failed = any(map(spoils, run.findings))
        return CheckedFile(
            path=opened.name,
            opened=opened,
            kind=kind,
            pipeline=None if pipeline is None else pipeline.model_type,
            merged=()
            if failed or pipeline is None
            else tuple(Merged(pipeline=pipeline, settings=each) for each in wholes),
            diagnostics=tuple(dict.fromkeys(run.findings)),
            documents=documents,
        )

    def _check_deploy(
        self, deploys: DeployFiles, documents: tuple[Document, ...], run: Run
    ) -> _Whole:
        """Check the file on its own and on every platform that it has a section for."""
        named = pipeline_named(documents)
        pipeline = self._pipeline if named is None else _pipeline(*named, self._catalog, run)
        if pipeline is not None and deploys.are_of_others(pipeline):
            return pipeline, []
        read = read_deploy(documents, Stages(pipeline=pipeline), self._fields, run)
        platforms = (None, *read.platforms)
        return self._merged(pipeline, [read.on(platform) for platform in platforms], run)

    def _check_strategy(self, document: Document, run: Run) -> _Whole:
        whole = Run()  # an entry of a strategy is never spread over layers
        layered = dataclasses.replace(document, layer=Layer.STRATEGY)
        stages = Stages(pipeline=self._pipeline)
        patches = list(read_strategy(layered, stages, self._catalog.axes, whole))
        run.findings.extend(whole.findings)
        return self._merged(self._pipeline, [patches], run)

    def _merged(
        self, pipeline: PipelineConfig | None, layers: Iterable[list[Patch]], run: Run
    ) -> _Whole:
        if pipeline is None:
            return None, []
        wholes = [settle(each, pipeline, self._catalog, self._fields, run) for each in layers]
        return pipeline, wholes


def kind_of(documents: tuple[Document, ...]) -> FileKind | None:
    """Tell what a file holds by the keys of its root."""
    if not documents:
        return None
    root = documents[-1].value
    if is_strategy(documents[-1]):
        return FileKind.STRATEGY
    return FileKind.PLAN if root.keys() >= PLAN_KEYS else FileKind.DEPLOY
