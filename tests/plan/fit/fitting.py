"""Pipelines that are laid out by search: made by hand, with engines that only plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.engines.ar import ENGINE as AR
from stagemesh.engines.diffusion import ENGINE as DIFFUSION
from stagemesh.engines.fake import ENGINE as FAKE
from stagemesh.engines.generation import ENGINE as GENERATION
from stagemesh.plan.build import PlanRequest
from stagemesh.plan.devices import IMAGINARY, Devices
from stagemesh.plan.fit.search import Choice, Found, search
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from tests.plan.making import Said, catalog, pipeline, request, solo, stage

SPEECH: Final = pipeline(
    stage(0, "thinker"),
    stage(1, "talker"),
    stage(
        2,
        "code2wav",
        execution_type=ExecutionType.LLM_GENERATION,
        final_output=True,
        final_output_type="audio",
    ),
    planning_only="its networks are not connected",
)
SPEECH_FACTS: Final[Mapping[str, StageFacts]] = {
    "thinker": StageFacts(
        num_attention_heads=28,
        num_kv_heads=4,
        num_layers=28,
        num_experts=0,
        hidden_size=3584,
        intermediate_size=18944,
        head_dim=128,
        vocab_size=152064,
        max_model_len=32768,
        weight_dtype="bfloat16",
        weight_bytes=15_231_233_024,
    ),
    "talker": StageFacts(
        num_attention_heads=12,
        num_kv_heads=4,
        num_layers=24,
        num_experts=0,
        hidden_size=896,
        intermediate_size=18944,
        head_dim=128,
        vocab_size=8448,
        max_model_len=32768,
        weight_dtype="bfloat16",
        weight_bytes=2_700_000_000,
    ),
    "code2wav": StageFacts(num_experts=0, hidden_size=1024, weight_bytes=1_500_000_000),
}
PICTURE: Final = solo(ExecutionType.DIFFUSION, final_output=True, final_output_type="image")


def installed(*pipelines: PipelineConfig) -> Catalog:
    """The engines of this project, of which none has to be named."""
    engines = {engine.name: engine for engine in (AR, DIFFUSION, FAKE, GENERATION)}
    return replace(catalog(*pipelines), engines=engines)


def asked(
    model: PipelineConfig,
    facts: StageFacts | Mapping[str, StageFacts],
    device: str = "H200",
    count: int = 8,
    said: Mapping[str, Said] | None = None,
) -> PlanRequest:
    """Ask for a plan on imaginary devices."""
    devices = Devices(kind=device, count=count, memory_bytes=IMAGINARY[device], imaginary=True)
    given = request(model, said, devices=devices)
    if isinstance(facts, StageFacts):
        facts = {each.model_stage: facts for each in model.stages}
    return replace(given, facts=facts)


def found(given: PlanRequest, best: int = 3) -> Found:
    """Search with the engines of this project."""
    return search(given, installed(), best)


def layouts(result: Found) -> list[dict[str, dict[str, int]]]:
    """Sizes of the axes of every stage that has some, for each choice."""
    return [layout(choice) for choice in result.choices]


def layout(choice: Choice) -> dict[str, dict[str, int]]:
    """Sizes of the axes of every stage that has some."""
    return {
        each.name: {axis.axis: axis.size for axis in each.axes}
        for each in choice.plan.stages
        if each.axes
    }
