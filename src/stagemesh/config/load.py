"""From inputs to merged settings: reads every file once and reports all mistakes of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from stagemesh.config.axes_off import spoils
from stagemesh.config.bases import DeployFiles, pipeline_named
from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.checkpoint import Checkpoint, find_folder, read_checkpoint, read_config
from stagemesh.config.command_line import read_command_line
from stagemesh.config.deploy import read_deploy
from stagemesh.config.document import Document, Findings, Source, read_json, read_mapping
from stagemesh.config.fields import stage_fields
from stagemesh.config.identify import model_of, named_model
from stagemesh.config.inputs import ConfigInput, PlanInputs
from stagemesh.config.launch_rules import launch_findings
from stagemesh.config.layering import meet_strategy
from stagemesh.config.lookup import read_file
from stagemesh.config.opened import OpenedFile
from stagemesh.config.patch import Patch
from stagemesh.config.place import Place, Run
from stagemesh.config.scope import Scope
from stagemesh.config.settings import Settings, Sourced
from stagemesh.config.settle import settle
from stagemesh.config.stages import Stages
from stagemesh.config.strategy import EXPECTED, read_strategy
from stagemesh.config.strategy_specs import SOURCE, file_form
from stagemesh.config.topology import topology_findings
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer
from stagemesh.spec.pipeline import PipelineConfig
from stagemesh.spec.unset import Unset


@frozen
class Loaded:
    """What the files, flags and the checkpoint said together."""

    pipeline: PipelineConfig | None
    """The model's pipeline, when it could be told."""
    settings: Settings | None
    """The merged configuration; `None` as soon as one diagnostic is an error."""
    checkpoint: Checkpoint | None
    """The checkpoint, when it was found and understood."""
    diagnostics: tuple[Diagnostic, ...]
    """All that was found, in the order of reading; warnings too."""
    documents: tuple[Document, ...]
    """What was read, for showing the lines at fault."""
    replaced: str | None = None
    """The model's own deploy file, where the one that was given keeps none of its values."""


def load(inputs: PlanInputs, catalog: Catalog | None = None, platform: str | None = None) -> Loaded:
    """Read, check and merge everything; `catalog` is what is installed when it is not given.

    `platform` is that of the devices: its section of a deploy file holds.
    """
    known = Catalog.installed() if catalog is None else catalog
    return _Loading(inputs, known, platform).load()


class _Loading:
    """One load: the catalog, and what was found so far."""

    def __init__(self, inputs: PlanInputs, catalog: Catalog, platform: str | None) -> None:
        self._inputs = inputs
        self._catalog = catalog
        self._platform = platform
        self._fields = stage_fields(catalog)
        self._run = Run(partial=True)
        self._deploys = DeployFiles(catalog, self._run)
        self._documents: list[Document] = []
        self._launch: Mapping[str, Sourced[object]] = {}

    def load(self) -> Loaded:
        inputs = self._inputs
        given = file_form(inputs.strategy_config, self._catalog.axes, self._run.findings)
        strategy = self._open(given, SOURCE, Layer.STRATEGY, EXPECTED)
        deploy = self._open_deploy()
        overrides = self._open_overrides()
        model, checkpoint = self._find_model(deploy)
        if model is not None and isinstance(inputs.deploy_config, Unset):
            deploy = self._keep_all(self._deploys.open_default(model))
        elif model is not None and self._deploys.are_of_others(model.pipeline):
            deploy = ()  # each of its values would be wrong
        pipeline = None if model is None else model.pipeline
        patches = self._patches(Stages(pipeline=pipeline), strategy, deploy, overrides)
        settings = None if pipeline is None else self._settle(pipeline, patches)
        failed = any(map(spoils, self._run.findings))
        return Loaded(
            pipeline=pipeline,
            settings=None if failed else settings,
            checkpoint=checkpoint,
            diagnostics=tuple(self._run.findings),
            documents=tuple(self._documents),
            replaced=None if model is None else self._replaced(model),
        )

    def _replaced(self, model: Model) -> str | None:
        """Name the model's own deploy file, where another was given that lies on no shipped one."""
        if isinstance(self._inputs.deploy_config, Unset):
            return None
        is_based = any(each.shipped for each in self._documents)
        return None if is_based else model.pipeline.default_deploy_config_name

    # --- opening --------------------------------------------------------------------------------

    def _open(
        self,
        given: ConfigInput | Unset,
        argument: str,
        layer: Layer,
        expected: str = "a mapping",
    ) -> Document | None:
        if isinstance(given, Unset):
            return None
        if isinstance(given, str | Path | OpenedFile):
            source = Source(name=str(given), layer=layer, expected=expected)
            return self._keep(read_file(given, source, self._run.findings))
        source = Source(name=argument, layer=layer, expected=expected)
        return self._keep(read_mapping(given, source, self._run.findings))

    def _open_deploy(self) -> tuple[Document, ...]:
        given = self._inputs.deploy_config
        if isinstance(given, Unset):
            return ()
        return self._keep_all(self._deploys.open(given, "deploy_config"))

    def _open_overrides(self) -> Document | None:
        given = self._inputs.stage_overrides
        expected = "a mapping from stages to fields"
        if isinstance(given, Unset):
            return None
        if isinstance(given, str):
            source = Source(name="--stage-overrides", layer=Layer.STAGE, expected=expected)
            return self._keep(read_json(given, source, self._run.findings))
        source = Source(name="stage_overrides", layer=Layer.STAGE, expected=expected)
        return self._keep(read_mapping(given, source, self._run.findings))

    def _keep(self, document: Document | None) -> Document | None:
        if document is not None:
            self._documents.append(document)
        return document

    def _keep_all(self, documents: tuple[Document, ...]) -> tuple[Document, ...]:
        self._documents.extend(reversed(documents))
        return documents

    # --- the model ------------------------------------------------------------------------------

    def _find_model(self, deploy: tuple[Document, ...]) -> tuple[Model | None, Checkpoint | None]:
        """Find the checkpoint and its model; a deploy file that names the pipeline decides."""
        run, catalog = self._run, self._catalog
        named = pipeline_named(deploy)
        model = None if named is None else named_model(*named, catalog, run)
        recipes = [m.pipeline.model_type for m in catalog.models if m.pipeline.checkpoint_recipe]
        inputs = self._inputs
        folder = find_folder(str(inputs.model), recipes, run, inputs.argument)
        file = None if folder is None else read_config(folder, run)
        if file is not None and named is None:
            model = model_of(file, catalog, run)
        if model is None:
            return None, None
        wrong = topology_findings(model.pipeline, catalog, self._fields)
        run.findings.extend(wrong)
        if wrong:
            return None, None
        if file is None:
            return model, None
        read = Run()
        checkpoint = read_checkpoint(file, model.pipeline, read)
        run.findings += read.findings if named is None else _asked_by(named, read.findings)
        return model, checkpoint

    # --- the settings ---------------------------------------------------------------------------

    def _patches(
        self,
        stages: Stages,
        strategy: Document | None,
        deploy: tuple[Document, ...],
        overrides: Document | None,
    ) -> list[Patch]:
        run, fields = self._run, self._fields
        patches = read_deploy(deploy, stages, fields, run).on(self._platform)
        if strategy is not None:
            whole = Run()  # an entry of a strategy is never spread over layers
            patches += read_strategy(strategy, stages, self._catalog.axes, whole)
            run.findings.extend(whole.findings)
        scope = Scope(stages=stages, fields=fields, catalog=self._catalog)
        typed = read_command_line(self._inputs, overrides, scope, patches, run)
        self._launch = typed.launch
        return [*patches, *typed.patches]

    def _settle(self, pipeline: PipelineConfig, patches: list[Patch]) -> Settings:
        stages, axes = Stages(pipeline=pipeline), self._catalog.axes
        self._run.findings.extend(meet_strategy(patches, stages, axes))
        settings = settle(patches, pipeline, self._catalog, self._fields, self._run)
        self._run.findings.extend(launch_findings(self._launch))
        return replace(settings, launch=self._launch)


def _asked_by(named: tuple[str, Place], findings: Findings) -> Iterator[Diagnostic]:
    """Say beside what a checkpoint lacks who asks it for that: a file that names the pipeline."""
    name, place = named
    note = Note(message=f"{quoted(name)} is asked for here", origin=place.origin)
    return (replace(found, notes=(*found.notes, note)) for found in findings)
