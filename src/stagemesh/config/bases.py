"""Opens a deploy file with the files below it: `base_config` leads from one to the next.

A name without folders stands for a file that ships with a model, unless there is a file of that
name; a folder of that name is none.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.check import wrong_type
from stagemesh.config.deploy import BASE
from stagemesh.config.document import Document, Source, read_mapping
from stagemesh.config.inputs import ConfigInput
from stagemesh.config.lookup import is_file, is_folder, is_name, near_path, path_help, read_file
from stagemesh.config.opened import OpenedFile
from stagemesh.config.place import Place, Run
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Note, did_you_mean, nearest
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import PipelineConfig
from stagemesh.spec.unset import UNSET

MAX_FILES: Final = 16
"""Files that may lie on each other."""

_SUFFIX: Final = ".yaml"


@frozen
class _File:
    """A deploy file and how messages call it."""

    path: Path
    shown: str
    ships: bool = False
    opened: OpenedFile | None = None


class DeployFiles:
    """Opens deploy files, given ones and those that ship with models."""

    def __init__(self, catalog: Catalog, run: Run) -> None:
        """Take the models that ship files; what is wrong goes to `run`."""
        self._catalog = catalog
        self._run = run
        self._origins: dict[Path, Origin] = {}

    def open(self, given: ConfigInput, argument: str) -> tuple[Document, ...]:
        """Return the file and those below it, the lowest first; nothing when it cannot be read.

        `argument` is how messages call a Python mapping.
        """
        if not isinstance(given, str | Path | OpenedFile):
            source = Source(name=argument, layer=Layer.DEPLOY)
            document = read_mapping(given, source, self._run.findings)
            return () if document is None else self._with_bases(document, None)
        opened = given if isinstance(given, OpenedFile) else None
        file = _File(path=Path(str(given)), shown=str(given), opened=opened)
        if is_name(file.shown) and not is_file(file.path):
            shipped = self._shipped(file.shown)
            if len(shipped) > 1:
                origin = Origin(layer=Layer.DEPLOY, source=file.shown)
                self._tell_several(file.shown, shipped, origin)
                return ()
            for each in shipped:
                self._origins[each.path] = Origin(layer=Layer.DEPLOY, source=file.shown)
            file = shipped[0] if shipped else file
        document = self._read(file)
        return () if document is None else self._with_bases(document, file)

    def open_default(self, model: Model) -> tuple[Document, ...]:
        """Return the deploy file that ships with a model, and those below it."""
        name = f"{model.pipeline.default_deploy_config_name}{_SUFFIX}"
        file = _File(path=_folder(model) / name, shown=name, ships=True)
        if not file.path.is_file():
            message = f"`{model.pipeline.model_type}` ships no deploy file `{name}`"
            origin = Origin(layer=Layer.DEPLOY, source=str(file.path.parent))
            self._run.tell("MD013", message, origin, "give one with `--deploy-config`")
            return ()
        document = self._read(file)
        return () if document is None else self._with_bases(document, file)

    def are_of_others(self, pipeline: PipelineConfig) -> bool:
        """Whether a file that was named ships with a model of another family; that is told."""
        if not self._origins:
            return False
        models = self._catalog.models
        own = {each.package for each in models if _are_related(each.pipeline, pipeline)}
        folders = {_folder(each) for each in models if each.package in own}
        foreign = [path for path in self._origins if path.parent not in folders]
        for path in foreign:
            owners = sorted(
                each.pipeline.model_type
                for each in self._catalog.models
                if _folder(each) == path.parent
            )
            self._run.findings.append(
                Diagnostic(
                    code="CF039",
                    message=f"`{path.stem}` ships with another model than `{pipeline.model_type}`",
                    origin=self._origins[path],
                    help=f"it is for {', '.join(f'`{owner}`' for owner in owners)}; of this model:"
                    f" {', '.join(f'`{name}`' for name in self._names(folders, pipeline))}",
                )
            )
        misfits = [path for path in self._origins if path not in foreign]
        misfits = [path for path in misfits if not self._fits(path, pipeline)]
        for path in misfits:
            self._tell_misfit(path, pipeline)
        return bool(foreign or misfits)

    def _fits(self, path: Path, pipeline: PipelineConfig) -> bool:
        """Whether a pipeline has the stages that a file is for; a profile of no one fits all."""
        ids = {stage.stage_id for stage in pipeline.stages}
        owners = self._owners(path)
        return not owners or any(
            {stage.stage_id for stage in each.stages} <= ids for each in owners
        )

    def _owners(self, path: Path) -> list[PipelineConfig]:
        """Return the pipelines that run by a file unless told otherwise."""
        return [
            each.pipeline
            for each in self._catalog.models
            if _folder(each) == path.parent
            and each.pipeline.default_deploy_config_name == path.stem
        ]

    def _tell_misfit(self, path: Path, pipeline: PipelineConfig) -> None:
        owners = self._owners(path)
        meant = [each for each in owners if _are_related(each, pipeline)] or owners
        listed = " or ".join(sorted(f"`pipeline: {each.model_type}`" for each in meant))
        self._run.tell(
            "CF039",
            f"`{path.stem}` is for stages that `{pipeline.model_type}` does not have",
            self._origins[path],
            f"in a deploy file of your own, write `{BASE}: {path.stem}` with {listed}",
        )

    def _names(self, folders: Iterable[Path], pipeline: PipelineConfig) -> list[str]:
        """Name the files of some folders that fit a pipeline."""
        files = (file for folder in folders for file in folder.glob(f"*{_SUFFIX}"))
        return sorted({file.stem for file in files if self._fits(file, pipeline)})

    # --- reading --------------------------------------------------------------------------------

    def _read(self, file: _File, named: Origin | None = None) -> Document | None:
        """Read a file; one that cannot be is told with the place that names it."""
        findings: list[Diagnostic] = []
        source = Source(name=file.shown, layer=Layer.DEPLOY, shipped=file.ships)
        document = read_file(file.opened or file.path, source, findings)
        for found in findings:
            told = found
            if document is None and named is not None:
                note = Note(message=f"named as `{BASE}` here", origin=named)
                told = dataclasses.replace(found, notes=(*found.notes, note))
            elif found.code == "CF001" and is_name(file.shown) and not is_file(file.path):
                told = dataclasses.replace(found, help=self._help(file.shown, Path()))
            self._run.findings.append(told)
        return document

    def _with_bases(self, document: Document, file: _File | None) -> tuple[Document, ...]:
        chain = [document]
        files = [] if file is None else [file]
        while (named := self._named(chain[-1])) is not None:
            base = self._find(named, files[-1] if files else None, chain[-1])
            if base is None or not self._is_new(base, files, chain[-1]):
                break
            below = self._read(base, self._place(chain[-1]).origin)
            if below is None:
                break
            chain.append(below)
            files.append(base)
        return tuple(
            dataclasses.replace(each, layer=Layer.OVERLAY if _lies_on_another(each) else each.layer)
            for each in reversed(chain)
        )

    def _named(self, document: Document) -> str | None:
        """Return what `base_config` says, when it says anything that can be looked for."""
        given = document.value.get(BASE)
        if given is None or (isinstance(given, str) and given):
            return given
        wrong_type(given, self._place(document), self._run, "the path of a deploy file")
        return None

    def _place(self, document: Document) -> Place:
        return Place(located=document).child(BASE)

    def _find(self, named: str, above: _File | None, document: Document) -> _File | None:
        folder = Path() if above is None else above.path.parent
        if is_file(folder / named):
            beside = "" if above is None else os.path.dirname(above.shown)  # noqa: PTH120  no `./`
            shown = os.path.normpath(os.path.join(beside, named))  # noqa: PTH118  no `./`
            ships = above is not None and above.ships
            return _File(path=folder / named, shown=shown, ships=ships)
        origin = self._place(document).origin
        shipped = self._shipped(named) if is_name(named) else []
        if not shipped:
            lacks = "is a folder" if is_folder(folder / named) else "does not exist"
            message = f"base file {quoted(named, 60)} {lacks}"
            looked = f"looked in `{folder.absolute()}`"
            meant = self._help(named, folder) if is_name(named) else path_help(str(folder / named))
            self._run.tell("CF016", message, origin, f"{looked}; {meant}")
        elif len(shipped) > 1:
            self._tell_several(named, shipped, origin)
        if len(shipped) != 1:
            return None
        self._origins[shipped[0].path] = origin
        return shipped[0]

    def _is_new(self, base: _File, files: list[_File], document: Document) -> bool:
        """Whether the file is not below itself, nor below too many others."""
        place = self._place(document)
        paths = [each.path.resolve() for each in files]
        if base.path.resolve() in paths:
            first = paths.index(base.path.resolve())
            circle = " -> ".join(f"`{each.shown}`" for each in (*files[first:], base))
            message = f"`{BASE}` leads back to {quoted(files[first].shown, 60)}"
            self._run.tell("CF017", message, place.origin, f"take one out of {circle}")
            return False
        if len(files) >= MAX_FILES:
            message = f"more than `{MAX_FILES}` deploy files lie on each other"
            self._run.tell("CF018", message, place.origin, "put some of them into one file")
            return False
        return True

    # --- files that ship ------------------------------------------------------------------------

    def _shipped(self, name: str) -> list[_File]:
        """Return the files of that name that ship with models."""
        wanted = name if name.endswith(_SUFFIX) else name + _SUFFIX
        return [
            _File(path=path, shown=wanted, ships=True)
            for path in self._all_shipped()
            if path.name == wanted
        ]

    def _all_shipped(self) -> list[Path]:
        folders = sorted({_folder(model) for model in self._catalog.models})
        return [file for folder in folders for file in folder.glob(f"*{_SUFFIX}")]

    def _help(self, name: str, folder: Path) -> str:
        """Say which file in a folder was meant by a name, and which of those that ship."""
        stem, names = name.removesuffix(_SUFFIX), {path.stem for path in self._all_shipped()}
        if stem in {model.pipeline.model_type for model in self._catalog.models} - names:
            return f"`{stem}` is a pipeline: write `pipeline: {stem}` in a deploy file"
        shipped = f"of the files that ship with models: {did_you_mean(stem, names)}"
        near = near_path(str(folder / name))
        if near is None:
            return shipped
        beside = f"did you mean the file {quoted(near, 80)}?"
        return beside if nearest(stem, names) is None else f"{beside} {shipped}"

    def _tell_several(self, name: str, files: list[_File], origin: Origin) -> None:
        message = f"several models ship a deploy file {quoted(name, 60)}"
        listed = ", ".join(f"`{file.path}`" for file in files)
        self._run.tell("CF019", message, origin, f"write the path of one: {listed}")


def pipeline_named(documents: tuple[Document, ...]) -> tuple[str, Place] | None:
    """Return the pipeline that deploy files name, and where; `null` takes back a lower word."""
    for document in reversed(documents):
        if "pipeline" in document.value:
            name = document.value["pipeline"]
            place = Place(located=document).child("pipeline")
            return (name, place) if isinstance(name, str) else None
    return None


def _are_related(one: PipelineConfig, other: PipelineConfig) -> bool:
    """Whether two pipelines are the same, or one is a variant of the other."""
    return one.model_type in {other.model_type, other.variant_of} or (
        one.variant_of == other.model_type
    )


def _lies_on_another(document: Document) -> bool:
    return document.value.get(BASE, UNSET) not in (None, UNSET)


def _folder(model: Model) -> Path:
    # `importlib.resources` would say the same, for 17 ms of the planner's 400
    return Path(importlib.import_module(model.package).__path__[0], "deploy")
