"""`DiffusionParallelConfig`: the same layout as the fields it stands for."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import cast

import pytest

from stagemesh.config.fields import stage_fields
from stagemesh.config.inputs import PlanInputs
from stagemesh.errors import AxisTranslationError
from stagemesh.plan.diffusion_parallel import DiffusionParallelConfig
from tests.config.flagged import planned, python_made
from tests.plan.making import catalog


def test_its_defaults_are_one_rank() -> None:
    """As the document lists them; the product of the degrees is filled in."""
    config = DiffusionParallelConfig()
    assert (config.tensor_parallel_size, config.ulysses_degree, config.hsdp_shard_size) == (
        1,
        1,
        -1,
    )
    assert (config.sequence_parallel_size, config.data_parallel_size) == (1, None)
    assert (config.ulysses_mode, config.vae_parallel_mode) == ("advanced_uaa", "tile")
    assert config.world_size == 1
    assert config.stage_fields() == {}


def test_what_was_given_is_told_apart_from_an_equal_default() -> None:
    """A typed 1 overrides a file; it is no other value."""
    given = DiffusionParallelConfig(tensor_parallel_size=1, data_parallel_size=None)
    assert given.stage_fields() == {"data_parallel_size": None, "tensor_parallel_size": 1}
    assert given == DiffusionParallelConfig()
    assert copy.copy(given).stage_fields() == given.stage_fields()


def test_each_of_its_fields_is_a_field_of_a_stage() -> None:
    """So nothing that is given can be lost."""
    names = set(DiffusionParallelConfig.__annotations__) - {"given"}
    assert names <= set(stage_fields(catalog()))


@pytest.mark.parametrize(
    ("config", "sequence", "world"),
    [
        (DiffusionParallelConfig(ulysses_degree=2, ring_degree=2), 4, 4),
        (DiffusionParallelConfig(ulysses_degree=2, allgather_degree=4), 8, 8),
        (DiffusionParallelConfig(cfg_parallel_size=2, ulysses_degree=2), 2, 4),
        (
            DiffusionParallelConfig(
                ulysses_degree=4, ring_degree=2, vae_patch_parallel_size=8, text_encoder_tp_size=8
            ),
            8,
            8,
        ),
        (DiffusionParallelConfig(use_hsdp=True, hsdp_shard_size=8), 1, 8),
        (
            DiffusionParallelConfig(use_hsdp=True, hsdp_shard_size=4, hsdp_replicate_size=2),
            1,
            8,
        ),
        (DiffusionParallelConfig(use_hsdp=True, ulysses_degree=2), 2, 2),
        (
            DiffusionParallelConfig(
                tensor_parallel_size=2, data_parallel_size=2, pipeline_parallel_size=2
            ),
            1,
            8,
        ),
        (DiffusionParallelConfig(sequence_parallel_size=6, ulysses_degree=2, ring_degree=3), 6, 6),
        (DiffusionParallelConfig(mask_sp_padding=True, ulysses_degree=2), 2, 2),
    ],
)
def test_derived_numbers_are_counted_by_the_planner(
    config: DiffusionParallelConfig, sequence: int, world: int
) -> None:
    """P74: every axis counts, and `hsdp` alone brings the ranks."""
    assert (config.sequence_parallel_size, config.world_size) == (sequence, world)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (DiffusionParallelConfig(use_hsdp=True), "AX040"),
        (DiffusionParallelConfig(use_hsdp=False, hsdp_shard_size=8), "AX010"),
        (DiffusionParallelConfig(use_hsdp=True, tensor_parallel_size=2), "AX021"),
        (DiffusionParallelConfig(ring_degree=2, allgather_degree=2), "AX011"),
        (DiffusionParallelConfig(sequence_parallel_size=99, ulysses_degree=2), "AX041"),
        (DiffusionParallelConfig(vae_patch_parallel_size=8, ulysses_degree=4), "AX036"),
        (DiffusionParallelConfig(ulysses_degree=cast("int", "2")), "CF012"),
        (DiffusionParallelConfig(ulysses_degree=2, ulysses_a2a_permute=True), "AX042"),
    ],
)
def test_a_layout_that_cannot_be_is_raised(config: DiffusionParallelConfig, code: str) -> None:
    """When its ranks are asked for, and as a diagnostic when it is planned."""
    with pytest.raises(AxisTranslationError, match=code) as caught:
        _ = config.world_size
    assert all(str(found.origin) == "parallel_config" for found in caught.value.diagnostics)


def test_it_is_laid_over_diffusion_stages_alone(tmp_path: Path) -> None:
    """A language model before the denoiser keeps its own layout."""
    config = DiffusionParallelConfig(tensor_parallel_size=2, ulysses_degree=2)
    plan = planned(
        python_made(tmp_path, PlanInputs(model="", fields=config.as_given()), model="ar_dit")
    )
    sizes = [{axis.axis: axis.size for axis in stage.axes} for stage in plan.stages]
    assert sizes == [{}, {"sp_ulysses": 2, "tp": 2}]
    assert plan.stages[1].values["axes.tp.size"].origin == "Omni(parallel_config=...)"
