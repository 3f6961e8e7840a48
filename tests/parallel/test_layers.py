"""Layers of which every rank holds a part compute what the whole layer does."""

from __future__ import annotations

import pytest

from tests.parallel.pool import pool_of

pytestmark = pytest.mark.slow

BOUND = 1e-12


@pytest.mark.parametrize("apart", [False, True])
def test_columns_and_rows_are_the_whole_layer(*, apart: bool) -> None:
    """The bias of the rows is added once, whether what lies between is whole or in parts."""
    assert max(pool_of(4).run("layer_cases.mlp", apart=apart)) <= BOUND


def test_a_norm_is_that_of_the_whole_vector() -> None:
    """Though each rank has only some of its channels."""
    assert max(pool_of(4).run("layer_cases.norm")) <= BOUND


@pytest.mark.parametrize("kv_heads", [8, 4, 2, 1])
def test_queries_keys_and_values_are_those_of_the_own_heads(kv_heads: int) -> None:
    """With fewer heads of keys than ranks, each of them is on several ranks."""
    for errors in pool_of(4).run("layer_cases.qkv", kv_heads=kv_heads):
        assert max(errors) <= BOUND


def test_what_does_not_divide_is_refused() -> None:
    """When the layer is made, on all ranks alike."""
    for told in pool_of(4).run("layer_cases.refusals"):
        assert told == [
            "`7` outputs cannot be cut into `4` equal parts",
            "`7` inputs cannot be cut into `4` equal parts",
            "`6` heads cannot be cut into `4` equal parts",
            "`3` heads of keys do not fit on `4` ranks",
        ]


def test_weights_of_another_shape_are_refused() -> None:
    """Neither cut nor spread: a checkpoint of another size is told on every rank."""
    for told in pool_of(4).run("layer_cases.wrong_weights"):
        assert told == [
            "`weight` of `(12, 6)` where `(8, 6)` belongs",
            "`bias` of `(1,)` where `(8,)` belongs",
            "`weight` of `(6, 12)` where `(6, 8)` belongs",
            "`bias` of `(1,)` where `(6,)` belongs",
            "`weight of k` of `(16, 4)` where `(8, 4)` belongs",
            "`weight` of `(1,)` where `(8,)` belongs",
            "`weight` of `(3, 1)` where `(3, 2)` belongs",
        ]
