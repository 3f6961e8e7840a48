"""What ranks say to each other: the same over every back end, in the same number of bytes."""

from __future__ import annotations

import os
import signal

import pytest

from tests.parallel.pool import own_pool, pool_of

pytestmark = pytest.mark.slow

BACKENDS = ("host_memory", "gloo")
SIZES = (2, 4, pytest.param(8, marks=pytest.mark.nightly))


@pytest.mark.parametrize("size", SIZES)
def test_unequal_pieces_arrive_and_their_bytes_are_the_same_over_every_back_end(size: int) -> None:
    """Also pieces of nothing, and types of eight bits."""
    for dtype in ("float32", "bfloat16", "float8_e4m3fn", "bool", "int64"):
        for backend in BACKENDS:
            pool_of(size).run("comm_cases.all_to_all", backend=backend, dtype=dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES)
def test_sums_have_the_same_bits_on_all_ranks(size: int, backend: str) -> None:
    """Short ones, ones that fill the rings several times, and lengths that nothing divides."""
    for length, dtype in ((7, "float64"), (1024, "float32"), (300_001, "float64")):
        got = pool_of(size).run("comm_cases.sums", backend=backend, length=length, dtype=dtype)
        assert all(each == got[0] for each in got)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES)
def test_a_ring_takes_pieces_of_any_length(size: int, backend: str) -> None:
    """None, one, and more than there is room for at once."""
    for length in (0, 1, 100_003):
        pool_of(size).run("comm_cases.around", backend=backend, length=length)


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_side_by_side_do_not_disturb_each_other(backend: str) -> None:
    """Pairs of four ranks add up at their own pace."""
    times = 40
    got = pool_of(4).run("comm_cases.in_turn", backend=backend, times=times)
    assert got == [float(times * (times - 1))] * 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_death_of_a_rank_ends_the_waits_of_the_others(backend: str) -> None:
    """A typed error, long before the deadline; and a closed mesh says that it is closed."""
    with own_pool(4) as pool:
        for rank in (0, 1, 3):
            pool.tell(rank, "comm_cases.wait_for_lost", backend=backend)
        os.kill(pool.pids[2], signal.SIGKILL)
        told = [str(pool.answer(rank)) for rank in (0, 1, 3)]
        assert all(each.startswith("RT071: rank") or "gone or late" in each for each in told)
        pool.tell(0, "comm_cases.closed", backend=backend)
        assert "the mesh has been closed" in str(pool.answer(0))
