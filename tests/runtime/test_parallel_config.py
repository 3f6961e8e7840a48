"""`Omni(parallel_config=...)`: what is said there is planned, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.errors import DiagnosticError
from stagemesh.plan.diffusion_parallel import DiffusionParallelConfig
from stagemesh.runtime.omni import AsyncOmni

FIXTURES = Path(__file__).parents[1] / "fixtures"


def codes(model: str, config: object) -> list[str]:
    """What stands against starting a model under a parallel configuration."""
    with pytest.raises(DiagnosticError) as caught:
        AsyncOmni(str(FIXTURES / model), devices="8xH200", parallel_config=config)
    return [found.code for found in caught.value.diagnostics]


def test_its_values_reach_the_planner() -> None:
    """All-gather and ring are two exchanges of the same ranks."""
    both = DiffusionParallelConfig(ring_degree=2, allgather_degree=4)
    assert codes("diffusers/flux", both) == ["AX011"]


def test_a_model_without_a_diffusion_stage_refuses_it() -> None:
    """It would do nothing there."""
    assert codes("qwen3_tts", DiffusionParallelConfig(ulysses_degree=2)) == ["CF060"]


def test_something_else_is_no_parallel_configuration() -> None:
    """A mapping is refused with the type that is taken; nothing is as good as absent."""
    for given in ({"ring_degree": 2}, 2, "tp"):
        assert codes("diffusers/flux", given) == ["CF012"]
    assert set(codes("diffusers/flux", None)) == {"RT003"}
