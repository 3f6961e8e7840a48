"""Attention over a cut sequence is that of one device, for every shape, and costs what it must."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.parallel.mesh.communicator import Traffic
from stagemesh.parallel.sequence.cuts import balanced, head_cuts
from stagemesh.parallel.sequence.ledger import AttentionShape, Ledger
from tests.examples import fewer
from tests.parallel.pool import pool_of

pytestmark = pytest.mark.slow

BOUND = {"float64": 1e-12, "float32": 2e-6}
SIZES = (2, 4, pytest.param(8, marks=pytest.mark.nightly))
SHAPE: dict[str, Any] = {
    "backend": "host_memory",
    "way": "ulysses",
    "batch": 2,
    "tokens": 13,
    "lengths": None,
    "heads": 6,
    "kv_heads": 3,
    "head_size": 4,
    "joint": None,
    "rear": False,
    "mask": "none",
    "packed": True,
    "dtype": "float64",
    "seed": 0,
}


def error_of(size: int, changed: dict[str, object], *, fault: str = "none") -> float:
    """The largest error of any rank."""
    shape = SHAPE | changed
    errors: list[float] = pool_of(size).run(
        "attention_cases.attention_error", shape=shape, fault=fault
    )
    return max(errors)


def ways(size: int) -> list[str]:
    """What so many ranks can stack."""
    return ["ulysses", "ring", "usp"] if size > 2 else ["ulysses", "ring"]


@st.composite
def shapes(draw: st.DrawFn, size: int) -> dict[str, object]:
    """Any shape: also ranks without tokens or heads, and keys that several queries share."""
    kv_heads = draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size).filter(any))
    return {
        "way": draw(st.sampled_from(ways(size))),
        "batch": draw(st.integers(1, 2)),
        "lengths": lengths,
        "heads": kv_heads * draw(st.integers(1, 3)),
        "kv_heads": kv_heads,
        "head_size": draw(st.sampled_from([1, 4, 5])),
        "joint": draw(st.one_of(st.none(), st.integers(0, 4))),
        "rear": draw(st.booleans()),
        "mask": draw(st.sampled_from(["none", "columns", "rows", "numbers"])),
        "packed": draw(st.booleans()),
        "dtype": draw(st.sampled_from(["float64", "float64", "float32"])),
        "seed": draw(st.integers(0, 1000)),
    }


@pytest.mark.parametrize("size", SIZES)
@fewer(3)
@given(data=st.data())
def test_it_is_the_attention_of_one_device_for_every_shape(size: int, data: st.DataObject) -> None:
    """In fp64 within 1e-12, in fp32 within 2e-6; calls and bytes are those of the formulas."""
    shape = data.draw(shapes(size))
    assert error_of(size, shape) <= BOUND[str(shape["dtype"])]


@pytest.mark.parametrize("way", ["ulysses", "ring", "usp"])
def test_it_is_the_same_over_gloo(way: str) -> None:
    """With a joint stream and a mask under which some rows see nothing."""
    assert error_of(4, {"way": way, "backend": "gloo", "joint": 3, "mask": "rows"}) <= 1e-12


@pytest.mark.parametrize(
    ("fault", "way"),
    [
        ("mask", "ulysses"),
        ("mask", "ring"),
        ("ring_step", "ring"),
        ("ring_step", "usp"),
        ("ranks", "ulysses"),
        ("ranks", "ring"),
        ("ranks", "usp"),
    ],
)
def test_a_fault_is_seen(fault: str, way: str) -> None:
    """No mask, a step of the ring left out, and the tokens of another rank: all fail by far."""
    assert error_of(4, {"way": way, "tokens": 16, "mask": "columns"}, fault=fault) > 1e-3


@pytest.mark.parametrize("length", [1, 3, 7, 16])
def test_what_is_cut_comes_together_again(length: int) -> None:
    """Also when there are fewer tokens than ranks; what does not fit is refused."""
    told = pool_of(4).run("attention_cases.shard_and_gather", length=length)
    assert all(("is no part of `99`" in each[-1]) for each in told)
    assert all(len(each) == (1 if length == 16 else 2) for each in told)


def test_what_cannot_be_is_refused_before_anything_is_sent() -> None:
    """By what all ranks know, so that none of them waits for another."""
    for told in pool_of(4).run("attention_cases.refusals"):
        assert told == [
            "`1` lengths for `4` ranks",
            "not `1` tokens here, as the lengths say",
            "a mask of `(1, 1, 1, 3)` for `8` tokens",
        ]


def test_shares_are_even_and_whole() -> None:
    """The first ranks have one more; a rank may have nothing."""
    assert balanced(7, 4) == (2, 2, 2, 1)
    assert balanced(2, 4) == (1, 1, 0, 0)
    with pytest.raises(ValueError, match="do not share"):
        head_cuts(4, 3, 2)


def test_even_shapes_cost_what_the_books_say() -> None:
    """Ulysses 4 B S/P H D (U-1)/U, ring 2 B S/R H/U D (R-1), text B T H D (U-1)/U."""
    shape = AttentionShape(
        batch=2, lengths=(8, 8, 8, 8), ulysses=2, heads=6, kv_heads=6, head_bytes=16, joint=5
    )
    text = 2 * 5 * 6 * 16 // 2
    assert shape.ulysses_traffic(3) == Traffic(calls=3, sent_bytes=4 * 2 * 8 * 6 * 16 // 2 + text)
    assert shape.ring_traffic(3) == Traffic(calls=1, sent_bytes=2 * 2 * 16 * 3 * 16)


def test_a_byte_too_much_is_told() -> None:
    """The ledger compares exactly, and names the axis."""
    ledger = Ledger()
    ledger.expect("ring", Traffic(calls=1, sent_bytes=8))
    ledger.expect("ring", Traffic(calls=1, sent_bytes=8))
    assert ledger.differences({"ring": Traffic(calls=2, sent_bytes=16)}) == []
    assert ledger.differences({"ring": Traffic(calls=2, sent_bytes=17)}) == [
        "`ring`: got `2` calls and `17` bytes, expected `2` and `16`"
    ]
