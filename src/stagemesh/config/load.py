"""From inputs to merged settings: reads every file once and reports all mistakes of all of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.checkpoint import Checkpoint, find_folder, read_checkpoint, read_config
from stagemesh.config.deploy import read_deploy
from stagemesh.config.document import Document, Source, read_json, read_mapping, read_yaml
from stagemesh.config.fields import stage_fields
from stagemesh.config.identify import model_of, named_model
from stagemesh.config.inputs import ConfigInput, PlanInputs
from stagemesh.config.layering import meet_strategy
from stagemesh.config.merge import merge
from stagemesh.config.overrides import read_async_chunk, read_overrides
from stagemesh.config.patch import Patch
from stagemesh.config.place import Place, Run
from stagemesh.config.settings import Settings
from stagemesh.config.settle import settle
from stagemesh.config.stages import Stages
from stagemesh.config.strategy import EXPECTED, read_strategy
from stagemesh.config.topology import topology_findings
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import PipelineConfig
from stagemesh.spec.unset import Unset


@dataclass(frozen=True, slots=True, kw_only=True)
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


def load(inputs: PlanInputs, catalog: Catalog | None = None) -> Loaded:
    """Read, check and merge everything; `catalog` is what is installed when it is not given."""
    known = Catalog.installed() if catalog is None else catalog
    return _Loading(inputs, known).load()


class _Loading:
    """One load: the catalog, and what was found so far."""

    def __init__(self, inputs: PlanInputs, catalog: Catalog) -> None:
        self._inputs = inputs
        self._catalog = catalog
        self._fields = stage_fields(catalog)
        self._run = Run(partial=True)
        self._documents: list[Document] = []

    def load(self) -> Loaded:
        inputs = self._inputs
        strategy = self._open(inputs.strategy_config, "strategy_config", Layer.STRATEGY, EXPECTED)
        deploy = self._open(inputs.deploy_config, "deploy_config", Layer.DEPLOY)
        overrides = self._open_overrides()
        model, checkpoint = self._find_model(deploy)
        if model is not None and isinstance(inputs.deploy_config, Unset):
            deploy = self._open_default(model)
        pipeline = None if model is None else model.pipeline
        patches = self._patches(Stages(pipeline=pipeline), strategy, deploy, overrides)
        settings = None if pipeline is None else self._settle(pipeline, patches)
        failed = any(found.is_error for found in self._run.findings)
        return Loaded(
            pipeline=pipeline,
            settings=None if failed else settings,
            checkpoint=checkpoint,
            diagnostics=tuple(self._run.findings),
            documents=tuple(self._documents),
        )

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
        if isinstance(given, str | Path):
            source = Source(name=str(given), layer=layer, expected=expected)
            return self._keep(read_yaml(Path(given), source, self._run.findings))
        source = Source(name=argument, layer=layer, expected=expected)
        return self._keep(read_mapping(given, source, self._run.findings))

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

    def _open_default(self, model: Model) -> Document | None:
        """Open the deploy file that ships with the model."""
        name = f"{model.pipeline.default_deploy_config_name}.yaml"
        source = Source(name=name, layer=Layer.DEPLOY)
        # `importlib.resources` would say the same, for 17 ms of the planner's 400
        file = Path(importlib.import_module(model.package).__path__[0], "deploy", name)
        if not file.is_file():
            message = f"`{model.pipeline.model_type}` ships no deploy file `{name}`"
            origin = Origin(layer=Layer.DEPLOY, source=str(file.parent))
            self._run.tell("MD013", message, origin, "give one with `--deploy-config`")
            return None
        return self._keep(read_yaml(file, source, self._run.findings))

    def _keep(self, document: Document | None) -> Document | None:
        if document is not None:
            self._documents.append(document)
        return document

    # --- the model ------------------------------------------------------------------------------

    def _find_model(self, deploy: Document | None) -> tuple[Model | None, Checkpoint | None]:
        """Find the checkpoint and its model; a deploy file that names the pipeline decides."""
        run, catalog = self._run, self._catalog
        named = None if deploy is None else deploy.value.get("pipeline")
        model = None
        if deploy is not None and isinstance(named, str):
            place = Place(located=deploy).child("pipeline")
            model = named_model(named, place, catalog, run)
        recipes = [m.pipeline.model_type for m in catalog.models if m.pipeline.checkpoint_recipe]
        folder = find_folder(str(self._inputs.model), recipes, run)
        file = None if folder is None else read_config(folder, run)
        if file is None:
            return model, None
        if model is None and not isinstance(named, str):
            model = model_of(file, catalog, run)
        if model is None:
            return None, None
        wrong = topology_findings(model.pipeline)
        run.findings.extend(wrong)
        if wrong:
            return None, None
        return model, read_checkpoint(file, model.pipeline, run)

    # --- the settings ---------------------------------------------------------------------------

    def _patches(
        self,
        stages: Stages,
        strategy: Document | None,
        deploy: Document | None,
        overrides: Document | None,
    ) -> list[Patch]:
        run, fields = self._run, self._fields
        patches: list[Patch] = []
        if deploy is not None:
            patches += read_deploy(deploy, stages, fields, run)
        if strategy is not None:
            whole = Run()  # an entry of a strategy is never spread over layers
            patches += read_strategy(strategy, stages, self._catalog.axes, whole)
            run.findings.extend(whole.findings)
        if overrides is not None:
            patches += read_overrides(overrides, stages, fields, run)
        return patches + read_async_chunk(self._inputs.async_chunk, run)

    def _settle(self, pipeline: PipelineConfig, patches: list[Patch]) -> Settings:
        stages, axes = Stages(pipeline=pipeline), self._catalog.axes
        self._run.findings.extend(meet_strategy(patches, stages, axes))
        roots = merge(patches, self._run.findings)
        whole = Run()
        settings = settle(roots, pipeline, self._catalog, self._fields, whole)
        self._run.findings.extend(whole.findings)
        return settings
