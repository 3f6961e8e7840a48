"""Pipelines of third parties: a graph that can be planned, or findings that name the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from stagemesh.config.catalog import Model
from stagemesh.config.topology import topology_findings
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig
from stagemesh.spec.registry import MODELS
from tests.config.speech import CATALOG, PIPELINE, Speech, told

END: Final[Mapping[str, object]] = {"final_output": True, "final_output_type": "text"}


def stage(number: int, name: str, *sources: int, **changes: object) -> StagePipelineConfig:
    """One stage."""
    return StagePipelineConfig(
        stage_id=number,
        model_stage=name,
        input_sources=sources,
        **changes,  # type: ignore[arg-type]
    )


def model(*stages: StagePipelineConfig) -> PipelineConfig:
    """A pipeline of these stages."""
    return replace(PIPELINE, stages=stages)


def messages(pipeline: PipelineConfig) -> list[str]:
    """Codes and messages."""
    return [f"{found.code}: {found.message}" for found in topology_findings(pipeline)]


def test_every_installed_pipeline_is_well() -> None:
    """Ours at least."""
    assert [found for pipeline in MODELS.declarations() for found in messages(pipeline)] == []


@pytest.mark.parametrize(
    ("stages", "found"),
    [
        ((), ["MD014: stages of `speech` must be numbered `0`, `1`, ..., got `none`", "MD017"]),
        (
            (stage(1, "a", **END), stage(0, "b")),
            ["MD014: stages of `speech` must be numbered `0`, `1`, ..., got `1, 0`"],
        ),
        (
            (stage(0, "a", **END), stage(2, "b", 0)),
            ["MD014: stages of `speech` must be numbered `0`, `1`, ..., got `0, 2`"],
        ),
        (
            (stage(0, "a", **END), stage(1, "a", 0), stage(2, "a", 1)),
            ["MD015: `speech` has two stages called `a`"],
        ),
        (
            (stage(0, "a", **END), stage(1, "b", 7)),
            ["MD016: stage `b` of `speech` cannot take input from `7`"],
        ),
        (
            (stage(0, "a", **END), stage(1, "b", 0, 0)),
            ["MD016: stage `b` of `speech` cannot take input from `0`"],
        ),
        ((stage(0, "a", 0, **END),), ["MD016: stages of `speech` wait for each other: `a`"]),
        (
            (stage(0, "a"), stage(1, "b", 0, 2), stage(2, "c", 1, **END)),
            ["MD016: stages of `speech` wait for each other: `b`, `c`"],
        ),
        ((stage(0, "a"),), ["MD017: no stage of `speech` puts anything out to the user"]),
        (
            (stage(0, "a", final_output=True),),
            ["MD017: the final stage `a` of `speech` names no type"],
        ),
    ],
)
def test_a_graph_that_cannot_be_planned_is_told(
    stages: tuple[StagePipelineConfig, ...], found: list[str]
) -> None:
    """One finding for each cause."""
    shown = messages(model(*stages))
    assert len(shown) == len(found)
    assert all(got.startswith(wanted) for got, wanted in zip(shown, found, strict=True))


@pytest.mark.parametrize("name", ["text", "token_ids", "text+audio", "text,audio", "image"])
def test_canonical_output_types_are_taken(name: str) -> None:
    """Alone and in combination."""
    assert messages(model(stage(0, "a", engine_output_type=name, **END))) == []


@pytest.mark.parametrize(
    ("name", "part", "remedy"),
    [
        ("speech", "speech", "write `audio`"),
        ("text+wav", "wav", "write `audio`"),
        ("pixels", "pixels", "write `image`"),
        ("latents", "latents", "write `latent`"),
        ("tokens", "tokens", "write `text` for text, or `token_ids` for discrete ids"),
        ("Text", "Text", "did you mean `text`?"),
        ("", "", "allowed here: `audio`"),
        ("text+", "", "allowed here: `audio`"),
        (" text", " text", "did you mean `text`?"),
        (None, "None", "allowed here: `audio`"),
    ],
)
def test_other_output_types_are_refused_with_what_is_meant(
    name: object, part: str, remedy: str
) -> None:
    """Aliases, another case, and nothing at all."""
    [found] = topology_findings(model(stage(0, "a", engine_output_type=name, **END)))
    assert found.message == f"stage `a` of `speech` has no output type `{part}`"
    assert str(found.help).startswith(remedy)


def test_a_model_with_a_broken_pipeline_is_not_planned(speech: Speech) -> None:
    """What else is wrong is told all the same; other models are not affected."""
    broken = model(stage(0, "thinker", engine_output_type="wav", **END))
    catalog = replace(CATALOG, models=(Model(pipeline=broken, package="nowhere"),))
    loaded = speech.load(deploy="stages: [{stage_id: 0, nonsense: 1}]", catalog=catalog)
    assert (loaded.pipeline, loaded.settings, loaded.checkpoint) == (None, None, None)
    assert [line.partition(" ")[0] for line in told(loaded)] == ["MD018", "CF010"]
    assert str(loaded.diagnostics[0].origin) == "pipeline `speech`"
