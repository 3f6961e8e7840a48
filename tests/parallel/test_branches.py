"""Branches of guidance on several ranks: the same bits, one gather, and nothing computed twice."""

from __future__ import annotations

import pytest
import torch

from stagemesh.parallel.branches import guided
from stagemesh.spec.model_plan import Formula, Guidance, Normalise
from tests.parallel.pool import pool_of

pytestmark = pytest.mark.slow

BRANCH_BYTES = 2 * 3 * 5 * 4 + 7 * 2


@pytest.mark.parametrize("backend", ["host_memory", "gloo"])
@pytest.mark.parametrize(("size", "shares"), [(2, [1, 1]), (2, [2, 1]), (2, [2, 2])])
def test_any_number_of_branches_gives_the_bits_of_one_rank(
    backend: str, size: int, shares: list[int]
) -> None:
    """Each branch runs on one rank; one gather sends the own outputs to the others."""
    got = pool_of(size).run("branch_cases.on_all_ranks", backend=backend, num=sum(shares))
    first = 0
    for told, share in zip(got, shares, strict=True):
        own = list(range(first, first + share))
        assert told == [*own, -1, 1, share * BRANCH_BYTES * (size - 1)]
        first += share


def test_more_ranks_than_branches_are_refused_on_all_of_them() -> None:
    """None waits for one that has nothing to do."""
    told = pool_of(2).run("branch_cases.too_many_ranks")
    assert told == ["`2` ranks for `1` branches of guidance"] * 2


POSITIVE = torch.tensor([[3.0, 4.0]])
NEGATIVE = torch.zeros(1, 2)


@pytest.mark.parametrize(
    ("combine", "wanted"),
    [(Formula.FROM_NEGATIVE, [[6.0, 8.0]]), (Formula.FROM_POSITIVE, [[9.0, 12.0]])],
)
def test_guidance_moves_away_from_the_negative_prediction(
    combine: Formula, wanted: list[list[float]]
) -> None:
    """For every output, by the formula of the plan."""
    ones = torch.ones(1, 1)
    got = guided((POSITIVE, ones), (NEGATIVE, ones), 2.0, Guidance(combine=combine))
    assert [each.tolist() for each in got] == [wanted, [[1.0]]]


@pytest.mark.parametrize(
    ("normalise", "factor", "wanted"),
    [
        (Normalise.NONE, 1.0, [6.0, 8.0]),
        (Normalise.LAST_DIM, 1.0, [3.0, 4.0]),
        (Normalise.STD, 1.0, [3.0, 4.0]),
        (Normalise.STD, 0.5, [4.5, 6.0]),
        (Normalise.CLAMP, 1.5, [4.5, 6.0]),
        (Normalise.CLAMP, 3.0, [6.0, 8.0]),
    ],
)
def test_a_normalisation_bounds_what_guidance_adds(
    normalise: Normalise, factor: float, wanted: list[float]
) -> None:
    """By length or by deviation, of each sample by itself."""
    both = torch.cat([POSITIVE, 10 * POSITIVE]), torch.zeros(2, 2)
    got = guided((both[0],), (both[1],), 2.0, Guidance(normalise=normalise), factor=factor)[0]
    torch.testing.assert_close(got, torch.tensor([wanted, [10 * each for each in wanted]]))


@pytest.mark.parametrize("normalise", list(Normalise))
def test_a_prediction_of_zeros_is_not_divided(normalise: Normalise) -> None:
    """It stays what it is, where a quotient would be no number."""
    got = guided((NEGATIVE,), (NEGATIVE,), 2.0, Guidance(normalise=normalise))
    assert got[0].tolist() == [[0.0, 0.0]]
