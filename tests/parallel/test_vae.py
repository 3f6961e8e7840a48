"""VAEs on several ranks: tiles give the bits of one rank, bands the picture itself."""

from __future__ import annotations

from typing import Any, Final

import pytest

from stagemesh.parallel.vae.tiles import shared_out
from tests.models.diffusers.tiny_vaes import TILES_ALONE, VAES
from tests.parallel.pool import pool_of

pytestmark = pytest.mark.slow

EXACT: Final = 1e-5
"""100 dB."""
MODES: Final = ("spatial_shard_height", "spatial_shard_width")
QUICK: Final = (("kl", 2), ("kl", 4), ("wan", 2), ("cogvideox", 2))
SHAPE_BYTES: Final = 5 * 8


def cells(*shorts: str) -> list[Any]:
    """Every VAE on two and on four ranks; a few of them at every commit."""
    return [
        pytest.param(short, size, marks=[] if (short, size) in QUICK else pytest.mark.nightly)
        for short in shorts
        for size in (2, 4)
    ]


@pytest.mark.parametrize(("short", "size"), cells(*VAES, *TILES_ALONE))
def test_tiles_of_several_ranks_are_those_of_one(short: str, size: int) -> None:
    """The same bits, each tile once, and one gather of what came out besides one of its shapes."""
    told = pool_of(size).run("vae_cases.in_tiles", short=short)
    for way in ("decode", "encode"):
        ran = [each[way][0] for each in told]
        [asked] = {each[way][1] for each in told}
        assert sum(ran) == asked
        for each in told:
            count, _, calls, sent, put_out = each[way]
            assert calls == 2
            assert sent == (size - 1) * (put_out + count * SHAPE_BYTES)


def test_ranks_without_a_tile_have_the_picture_too() -> None:
    """Two tiles for four ranks."""
    told = pool_of(4).run("vae_cases.in_tiles", short="kl", rows=-7, columns=-9)
    assert [each["decode"][:2] for each in told] == [[1, 2], [1, 2], [0, 2], [0, 2]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("short", "size"), cells(*VAES))
def test_bands_of_several_ranks_are_the_picture(short: str, size: int, mode: str) -> None:
    """Decoded and encoded at 100 dB, with bands that are not equally long."""
    told = pool_of(size).run("vae_cases.in_bands", short=short, mode=mode, rows=1, columns=2)
    for each in told:
        assert each["decode"] < EXACT
        assert each["encode"] < EXACT


@pytest.mark.parametrize("kind", ["Conv2d", "GroupNorm", "Attention", "Downsample2D"])
def test_a_rule_that_is_left_out_shows_in_the_picture(kind: str) -> None:
    """Bands that do not know of each other at one kind of module have seams."""
    [told, _] = pool_of(2).run("vae_cases.in_bands", short="kl", mode=MODES[0], without=kind)
    assert max(told.values()) > 100 * EXACT


def test_what_cannot_be_cut_is_refused_on_all_ranks() -> None:
    """Fewer rows than ranks, and a VAE about whose bands nothing is known."""
    few = pool_of(2).run("vae_cases.refused", short="kl", mode=MODES[0])
    message = "`1` along dim `-2` cannot be cut into `2` bands of whole multiples of `1`"
    assert few == [message] * 2
    unknown = pool_of(2).run("vae_cases.refused", short="ltx", mode=MODES[0])
    assert (
        unknown
        == ["nothing is known about bands of `AutoencoderKLLTXVideo`; take the mode `tile`"] * 2
    )


@pytest.mark.parametrize(
    ("weights", "ranks", "wanted"),
    [
        ([4, 4, 2, 2], 2, [0, 1, 0, 1]),
        ([1, 1, 4], 2, [1, 1, 0]),
        ([3], 2, [0]),
        ([1, 1, 1], 3, [0, 1, 2]),
    ],
)
def test_tiles_are_shared_out_by_their_weight(
    weights: list[int], ranks: int, wanted: list[int]
) -> None:
    """The heaviest first, each to the rank that has least to do."""
    assert shared_out(weights, ranks) == wanted
