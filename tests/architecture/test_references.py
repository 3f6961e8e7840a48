"""Every reference of every declaration leads to something that can be called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from stagemesh.spec.pipeline import PipelineConfig
from stagemesh.spec.reference import resolve
from stagemesh.spec.registry import COMMANDS, CONNECTORS, ENGINES, MODELS


def references() -> Iterator[tuple[str, str | None]]:
    """Where each reference is declared, and the reference; none may be missing of what runs."""
    for engine in ENGINES.declarations():
        if engine.planning_only is None:
            yield f"engine {engine.name}: factory", engine.factory
    for connector in CONNECTORS.declarations():
        if connector.planning_only is None:
            yield f"connector {connector.name}: sender", connector.sender
            yield f"connector {connector.name}: receiver", connector.receiver
    for command in COMMANDS.declarations():
        yield f"command {command.name}: run", command.run
    for pipeline in MODELS.declarations():
        yield from references_of(pipeline)


def references_of(pipeline: PipelineConfig) -> Iterator[tuple[str, str]]:
    """Where each reference of a model is declared, and the reference."""
    if pipeline.checkpoint_recipe is not None:
        yield f"model {pipeline.model_type}: checkpoint_recipe", pipeline.checkpoint_recipe
    for stage in pipeline.stages if pipeline.planning_only is None else ():
        place = f"model {pipeline.model_type}, stage {stage.model_stage}"
        for reference in (
            stage.loader,
            stage.custom_process_input_func,
            stage.async_chunk_process_next_stage_input_func,
            stage.custom_process_next_stage_input_func,
        ):
            if reference is not None:
                yield place, reference


REFERENCES: Final = tuple(references())


@pytest.mark.slow
@pytest.mark.parametrize("reference", [pytest.param(ref, id=where) for where, ref in REFERENCES])
def test_a_reference_resolves_to_something_callable(reference: str) -> None:
    """What a running stage will resolve is there."""
    assert callable(resolve(reference))


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("stagemesh.errors", ValueError),
        (":main", ValueError),
        ("stagemesh.nowhere:main", ImportError),
        ("stagemesh.errors:Nothing", AttributeError),
    ],
)
def test_a_reference_that_leads_nowhere_raises(reference: str, error: type[Exception]) -> None:
    """A planted bad reference would fail the test above."""
    with pytest.raises(error):
        resolve(reference)
