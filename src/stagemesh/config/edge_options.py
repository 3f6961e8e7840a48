"""`extra` of a connector: its own options, and those that the model has for the edges it carries.

Which edges a connector carries is decided later, so a model's option is checked here against every
stage that has it, and kept with its place for the plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from stagemesh.config.check import Annotation, checker, hints, unknown_key
from stagemesh.config.merge import Node, sourced
from stagemesh.config.place import Place, Run
from stagemesh.config.settings import Sourced
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import PipelineConfig
from stagemesh.spec.unset import UNSET


@frozen
class Extra:
    """What `extra` of one connector says."""

    options: object
    """An instance of the connector's `options`."""
    edge_options: Mapping[str, Sourced[object]]
    """Given options of the model for edges, by name."""


def read_extra(
    node: Node | None, options: type, pipeline: PipelineConfig, place: Place, run: Run
) -> Extra | None:
    """Tell apart what belongs to a connector and what to the model; `None` once one is wrong."""
    given = {} if node is None else sourced(node).parts
    own, model = hints(options), _of_model(pipeline)
    connector: dict[str | int, object] = {}
    edges: dict[str, Sourced[object]] = {}
    refused = False
    for name, part in given.items():
        if name in own:
            connector[name] = part.value
        elif name in model:
            edges[str(name)] = part
            refused |= not _fits(part.value, model[str(name)], place.child(name), run)
        else:
            unknown_key(name, place, run, [*own, *model])
            refused = True
    built = checker(options)(connector, place, run)
    return None if refused or built is UNSET else Extra(options=built, edge_options=edges)


def _of_model(pipeline: PipelineConfig) -> Mapping[str, list[Annotation]]:
    """Types of every option that some stage has for its edges."""
    found: defaultdict[str, list[Annotation]] = defaultdict(list)
    for stage in pipeline.stages:
        for name, annotation in hints(stage.edge_options).items():
            if annotation not in found[name]:
                found[name].append(annotation)
    return found


def _fits(value: object, annotations: list[Annotation], place: Place, run: Run) -> bool:
    """Whether a value has one of the types; what the first has against it is told."""
    attempts = [Run() for _ in annotations]
    for annotation, attempt in zip(annotations, attempts, strict=True):
        checker(annotation)(value, place, attempt)
        if not attempt.findings:
            return True
    run.findings.extend(attempts[0].findings)
    return False
