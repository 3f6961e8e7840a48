"""A stage may exclude axes that fit its kind, and let one bring its ranks that else brings none."""

from __future__ import annotations

import pytest

from stagemesh.spec.pipeline import ExecutionType
from tests.plan.making import Said, attempt, axis, codes, errors, planned, request, solo

DIFFUSION = ExecutionType.DIFFUSION


def test_an_axis_that_a_stage_excludes_is_refused_with_its_reason() -> None:
    """Though it fits the kind; the ranks of the others are still counted."""
    model = solo(DIFFUSION, excludes={"tp": "it has no heads"})
    said = {"thinker": Said(axes=[axis("tp", 2), axis("dp", 2)])}
    (found,) = errors(request(model, said))
    assert found.code == "AX020"
    assert found.message == "`tp` does not fit the stage `thinker`"
    assert found.help == "it has no heads"
    assert planned(request(solo(DIFFUSION), said)).stages[0].world_size == 4


def test_one_axis_is_refused_once() -> None:
    """The stage's reason is more precise than that of the kind."""
    model = solo(ExecutionType.LLM_AR, excludes={"cfg": "it has no guidance"})
    (found,) = errors(request(model, {"thinker": Said(axes=[axis("cfg", 2)])}))
    assert found.help == "it has no guidance"


def test_the_rank_axis_of_a_stage_brings_its_ranks() -> None:
    """On any other stage it only reuses those that are there."""
    said = {"thinker": Said(axes=[axis("vae_pp", 3)])}
    assert codes(request(solo(DIFFUSION), said)) == ["AX036"]
    stage = planned(request(solo(DIFFUSION, rank_axis="vae_pp"), said)).stages[0]
    assert stage.world_size == 3
    assert stage.axes[0].groups == ((0, 1, 2),)
    assert [dict(rank.coords) for rank in stage.replicas[0].ranks] == [
        {"vae_pp": number} for number in range(3)
    ]


@pytest.mark.parametrize(("size", "fits"), [(2, True), (3, False)])
def test_ranks_of_other_axes_come_first(*, size: int, fits: bool) -> None:
    """Then the rank axis reuses them as everywhere."""
    said = {"thinker": Said(axes=[axis("tp", 2), axis("vae_pp", size)])}
    result = attempt(request(solo(DIFFUSION, rank_axis="vae_pp"), said))
    if fits:
        assert result.plan is not None
        assert result.plan.stages[0].world_size == 2
    else:
        assert [found.code for found in result.diagnostics] == ["AX036"]
