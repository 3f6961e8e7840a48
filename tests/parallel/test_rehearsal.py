"""A run without numbers shows what is wrong with a plan, and names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from stagemesh.parallel.attention_calls import Heads
from stagemesh.parallel.rehearsal import Ranks, rehearse
from stagemesh.spec.model_plan import AttentionSite, Gather, HeadTable, SiteRole, Split
from tests.parallel.toy import EXAMPLE, PLAN, TOKENS

pytestmark = pytest.mark.slow

FIRST, ANGLES, MASK = PLAN.splits
[GATHER] = PLAN.gathers
[SITE] = PLAN.sites
IMG: Final = ("img",)
ROLE: Final = "correct its role or its streams"
DIMENSION: Final = "correct the dimension or streams"


@pytest.mark.parametrize(("tp", "sp"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_a_plan_that_holds_runs_through(tp: int, sp: int) -> None:
    """Uneven parts included: seven tokens over two and three ranks."""
    assert rehearse(PLAN, EXAMPLE, Ranks(tp=tp, sp=sp)) == ()


@pytest.mark.parametrize(
    ("changes", "code", "message", "help_text"),
    [
        (
            {"splits": (replace(FIRST, dim=2), ANGLES, MASK)},
            "MD054",
            "`x` of `blocks.0` does not have `7` tokens of `img` along `2`",
            f"it is `(2, 7, 24)`: {DIMENSION}",
        ),
        (
            {"splits": (replace(FIRST, rank=4), ANGLES, MASK)},
            "MD054",
            "`x` of `blocks.0` has `3` dimensions, not `4`",
            "it is `(2, 7, 24)`",
        ),
        (
            {"splits": (FIRST, replace(ANGLES, value=2), MASK)},
            "MD054",
            "`angles` has no output `2`",
            "it puts out a `tuple`",
        ),
        (
            {"splits": (FIRST, ANGLES, replace(MASK, dim=0))},
            "MD054",
            "`mask` of `blocks.0` does not have `7` tokens of `img` along `0`",
            f"it is `(2, 7)`: {DIMENSION}",
        ),
        (
            {"splits": (FIRST, MASK)},
            "MD056",
            "`angles` of `blocks.0` holds all `7` tokens of `img`, which is cut",
            "add a split along `img` for it: `(1, 7, 24)`",
        ),
        (
            {"gathers": (GATHER, replace(GATHER, module="spare"))},
            "MD054",
            "the run never came by `0` of `spare` of `Toy`",
            "leave it out, or correct its path",
        ),
        (
            {"gathers": (replace(GATHER, dim=2, rank=None),)},
            "MD054",
            "output `0` of `out` does not have `4` tokens of `img` along `2`",
            f"it is `(2, 4, 5)`: {DIMENSION}",
        ),
        (
            {"gathers": (replace(GATHER, rank=2),)},
            "MD054",
            "output `0` of `out` has `3` dimensions, not `2`",
            "it is `(2, 4, 5)`",
        ),
        (
            {"gathers": ()},
            "MD054",
            "the result of `Toy` has another shape under its plan",
            "`[(2, 4, 5)]` and not `[(2, 7, 5)]`: gather what is still cut",
        ),
        (
            {"sites": ()},
            "MD055",
            "attention in `blocks.0.attn` is no site of the plan of `Toy`",
            "name it in `sites`, with its role",
        ),
        (
            {"sites": (replace(SITE, masked=False),)},
            "MD055",
            "attention in `blocks.0.attn` has a mask, and its site is not `masked`",
            "write `masked=True`, and split the mask",
        ),
        (
            {"sites": (AttentionSite(module=SITE.module, role=SiteRole.LOCAL),)},
            "MD055",
            "attention in `blocks.0.attn` has a part of the tokens, and its site is `local`",
            ROLE,
        ),
        (
            {
                "whole": ("txt",),
                "sites": (replace(SITE, role=SiteRole.CROSS, whole=("txt",)),),
            },
            "MD055",
            "attention in `blocks.0.attn` has `4` keys, and `cross` means `5`",
            ROLE,
        ),
        (
            {"sites": (SITE, replace(SITE, module="blocks.*"))},
            "MD055",
            "`blocks.0` of `Toy` ran and called no attention",
            "name the module that calls it, or leave the site out",
        ),
        (
            {"tp": PLAN.tp[1:]},
            "MD057",
            "`blocks.0.attn.norm` of `Toy` does not run as it is cut",
            "`RuntimeError: ",
        ),
    ],
)
def test_what_does_not_fit_is_told(
    changes: dict[str, Any], code: str, message: str, help_text: str
) -> None:
    """With the plan, the module, what was found and what to write."""
    example = replace(EXAMPLE, lengths={"img": TOKENS, "txt": 5})
    found = rehearse(replace(PLAN, **changes), example, Ranks(tp=2, sp=2))
    assert (found[0].code, found[0].message, str(found[0].origin)) == (
        code,
        message,
        "plan of `Toy`",
    )
    assert (found[0].help or "").startswith(help_text)


@pytest.mark.parametrize(
    ("query", "key", "reason"),
    [
        ((4, 9, 6), (2, 9, 6), None),
        ((2, 9, 6), (1, 9, 6), None),
        ((2, 9, 3), (1, 9, 3), "they are `3` wide and not `6`: add an attribute"),
        ((3, 9, 6), (1, 9, 6), "`3` heads are no part of `4`"),
        ((2, 9, 6), (2, 9, 6), "`2` key heads belong to `2` heads, and not `1`"),
    ],
)
def test_heads_of_a_rank_follow_from_those_of_the_network(
    query: tuple[int, ...], key: tuple[int, ...], reason: str | None
) -> None:
    """All of them, or the rank's part, each of the same width."""
    heads = Heads()
    heads.note("attn", torch.empty(1, 4, 9, 6), torch.empty(1, 2, 9, 6))
    assert heads.misfit("attn", torch.empty(1, *query), torch.empty(1, *key), 2) == reason


def test_a_call_too_many_is_told() -> None:
    """A site says how often its module calls attention."""
    from tests.parallel import toy  # noqa: PLC0415  the one that looks twice is made here

    class Twice(toy.Toy):
        def __init__(self) -> None:
            super().__init__()
            block: Any
            for block in self.blocks:
                looking = block.attn.forward
                block.attn.forward = lambda x, mask=None, f=looking: f(f(x, mask), mask)

    def twice() -> Twice:
        with torch.device("meta"):
            return Twice()

    found = rehearse(PLAN, replace(EXAMPLE, network=twice), Ranks(sp=2))
    assert [(each.code, each.message, each.help) for each in found] == [
        ("MD055", "attention in `blocks.0.attn` is called more than `1` times", "write `calls=2`")
    ]


def test_a_tensor_that_is_missing_is_told_unless_it_is_optional() -> None:
    """None of a parameter is nothing to cut."""
    inputs = {**EXAMPLE.inputs, "mask": None}
    example = replace(EXAMPLE, inputs=inputs)
    assert rehearse(PLAN, example, Ranks(sp=2)) == ()
    plan = replace(PLAN, splits=(FIRST, ANGLES, replace(MASK, optional=False)))
    [found] = rehearse(plan, example, Ranks(sp=2))
    assert (found.code, found.message, found.help) == (
        "MD054",
        "`blocks.0` has no tensor `mask` to cut",
        "write `optional=True` where it may be missing",
    )


def test_what_is_no_tensor_cannot_be_cut() -> None:
    """A number is no tokens."""
    plan = replace(
        PLAN, splits=(*PLAN.splits, Split(module="angles", value="length", dim=0, streams=IMG))
    )
    [found] = rehearse(plan, EXAMPLE, Ranks(sp=2))
    assert found.message == "`angles` has no tensor `length` to cut"


def test_one_value_for_all_tokens_stays() -> None:
    """A dimension of size 1 is broadcast; another rank of an optional tensor has no tokens."""
    one = {**EXAMPLE.inputs, "mask": torch.empty(2, 1, device="meta")}
    assert rehearse(PLAN, replace(EXAMPLE, inputs=one), Ranks(sp=2)) == ()
    other = replace(PLAN, splits=(FIRST, ANGLES, replace(MASK, rank=3, dim=1)))
    assert rehearse(other, replace(EXAMPLE, inputs=one), Ranks(sp=2)) == ()


def test_an_output_of_heads_must_have_them() -> None:
    """A table along another dimension than it says fails where it is made."""
    table = HeadTable(module="angles", value=0, dim=1, pieces="blocks.0.attn.heads")
    plan = replace(PLAN, tables=(*PLAN.tables, table))
    [found] = rehearse(plan, EXAMPLE, Ranks(tp=2))
    assert (found.code, found.help) == (
        "MD057",
        "`ValueError: output `0` of `angles` has no `4` heads along `1`: `(1, 7, 24)``",
    )


def test_nothing_runs_where_paths_are_wrong() -> None:
    """The check of paths and sizes comes first."""
    plan = replace(PLAN, gathers=(Gather(module="exit", dim=1, streams=IMG),))
    assert [each.code for each in rehearse(plan, EXAMPLE, Ranks(sp=2))] == ["MD050"]
