"""Picking tokens: what each parameter allows, and that a draw depends on the seed alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.engines.ar.options import ArParams
from stagemesh.engines.ar.sampling import Sampler, pick_all

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
SCORES = torch.tensor([0.0, 4.0, 3.0, 2.0, 1.0, -9.0])


def sampler(**params: object) -> Sampler:
    """Return the sampler of a request whose end token is 1."""
    return Sampler(ArParams(**params), frozenset({1}), CPU)  # type: ignore[arg-type]


def draws(**params: object) -> list[int]:
    """Draw from the fixed scores."""
    one = sampler(seed=1, **params)
    return [one.pick(SCORES, [], 0) for _ in range(200)]


def test_temperature_zero_takes_the_likeliest() -> None:
    """Greedy is deterministic."""
    assert set(draws()) == {1}


def test_top_k_draws_among_the_best() -> None:
    """Only the k best come, and all of them do."""
    assert set(draws(temperature=5.0, top_k=3)) == {1, 2, 3}


def test_top_p_draws_among_the_mass() -> None:
    """The best three hold over 93 % of the probability, so they are all that comes at 0.9."""
    assert set(draws(temperature=1.0, top_p=0.9)) == {1, 2, 3}


@pytest.mark.parametrize("params", [{"top_p": 0.0}, {"top_k": 1}])
def test_one_token_always_stays(params: dict[str, object]) -> None:
    """The narrowest limits leave the likeliest token."""
    assert set(draws(temperature=9.0, **params)) == {1}


def test_a_high_temperature_draws_everything() -> None:
    """Without limits every token comes."""
    assert set(draws(temperature=50.0)) == {0, 1, 2, 3, 4, 5}


def test_the_repetition_penalty_works_on_either_sign() -> None:
    """Seen tokens lose: positive scores are divided, negative ones multiplied."""
    one = sampler(repetition_penalty=3.0)
    assert one.pick(SCORES, [1], 1) == 2
    assert one.pick(torch.tensor([-1.0, -2.0]), [0], 1) == 1


def test_min_tokens_holds_the_end_off() -> None:
    """An end token cannot come before the answer has its least length."""
    one = sampler(min_tokens=2)
    assert [one.pick(SCORES, [], answered) for answered in range(4)] == [2, 2, 1, 1]


def test_the_scores_of_a_batch_are_left_alone() -> None:
    """Picking changes no row."""
    scores_yv = SCORES.repeat(2, 1)
    one = sampler(temperature=2.0, top_k=2, repetition_penalty=2.0, min_tokens=9)
    pick_all(scores_yv, [(one, [1], 1), (sampler(), [], 0)])
    assert torch.equal(scores_yv, SCORES.repeat(2, 1))


@given(st.integers(0, 2**40), st.integers(0, 5))
def test_draws_do_not_depend_on_the_batch(seed: int, row: int) -> None:
    """The same seed and scores give the same draws alone and in any row."""
    alone = sampler(temperature=1.0, seed=seed)
    wanted = [alone.pick(SCORES, [], 0) for _ in range(5)]
    crowd = [sampler(temperature=3.0) for _ in range(6)]
    crowd[row] = sampler(temperature=1.0, seed=seed)
    scores_yv = torch.randn(6, 6)
    scores_yv[row] = SCORES
    got = [pick_all(scores_yv, [(one, [], 0) for one in crowd])[row] for _ in range(5)]
    assert got == wanted


def test_without_a_seed_requests_draw_differently() -> None:
    """Two requests without a seed do not say the same."""
    first, second = sampler(temperature=50.0), sampler(temperature=50.0)
    assert [first.pick(SCORES, [], 0) for _ in range(40)] != [
        second.pick(SCORES, [], 0) for _ in range(40)
    ]
