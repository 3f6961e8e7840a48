"""What a request may say to a stage, and what wins."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from stagemesh.errors import DiagnosticError
from stagemesh.runtime import declared
from stagemesh.runtime.params import RequestRules
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig
from stagemesh.testing.fake_plan import FakeStage, fake_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceParams:
    """What the network of these tests adds."""

    speed: float = 1.0
    """How fast it speaks."""
    stop: tuple[str, ...] = ()
    """What ends it."""


class Registry:
    """Stands for the models that are installed."""

    def declarations(self) -> tuple[PipelineConfig, ...]:
        """One pipeline, that of hand-made plans."""
        stage = StagePipelineConfig(
            stage_id=0,
            model_stage="only",
            params=VoiceParams,
            sampling_constraints={"num_outputs": 2, "stop": ("end",)},
        )
        return (
            PipelineConfig(
                model_type="fakes", summary="", stages=(stage,), default_deploy_config_name="fakes"
            ),
        )


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> RequestRules:
    """The rules of a plan with one stage whose pipeline has constraints."""
    monkeypatch.setattr(declared, "MODELS", Registry())
    stage = FakeStage(name="only", final="text", sampling={"delay_steps": 1, "num_outputs": 2})
    return RequestRules(fake_plan([stage]))


def test_a_request_is_laid_over_the_plan(rules: RequestRules) -> None:
    """What the request says wins over the plan, the rest stays; engine and network both count."""
    merged = rules.merge({"only": {"delay_steps": 3, "speed": 2}})
    assert merged == {0: {"delay_steps": 3, "num_outputs": 2, "speed": 2, "stop": ("end",)}}


def test_a_constraint_of_the_pipeline_wins(
    rules: RequestRules, caplog: pytest.LogCaptureFixture
) -> None:
    """What the pipeline does not let go of holds, lists are joined, and the caller is told."""
    with caplog.at_level(logging.WARNING):
        merged = rules.merge({"only": {"num_outputs": 9, "stop": ["halt"]}})
    assert merged[0]["num_outputs"] == 2
    assert merged[0]["stop"] == ("halt", "end")
    assert "only.num_outputs: 9 gives way to the model's 2" in caplog.text


def test_a_request_without_parameters_gets_the_plan(rules: RequestRules) -> None:
    """Nothing given, nothing changed."""
    assert rules.merge({})[0] == {"delay_steps": 1, "num_outputs": 2, "stop": ("end",)}


def test_the_type_of_the_network_is_checked(rules: RequestRules) -> None:
    """A parameter of the network is checked like one of the engine."""
    with pytest.raises(DiagnosticError, match="speed"):
        rules.merge({"only": {"speed": "fast"}})
