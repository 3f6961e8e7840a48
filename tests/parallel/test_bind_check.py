"""A plan that does not hold for its network is told before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from stagemesh.parallel.bind_check import bind_findings
from stagemesh.parallel.modules import matching
from stagemesh.parallel.tp_cuts import Cut, parameter_cuts
from stagemesh.spec.model_plan import AttentionSite, HeadTable, SiteRole, TpStyle
from tests.parallel.toy import PLAN, toy

pytestmark = pytest.mark.slow

Q, KV, *_, UP, DOWN = PLAN.tp
HEADS, EACH = PLAN.attributes[0], PLAN.attributes[-1]
TABLE: Final = PLAN.tables[0]
ATTRIBUTE: Final = "name an attribute of the block, by its path from there"
STYLES: Final = "columns and rows are `Linear`, across-heads norms have one weight a channel"
FEWER: Final = "choose a number of ranks that divides it"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_plan_that_holds_has_no_findings(ranks: int) -> None:
    """For a number of ranks that divides what is cut."""
    assert bind_findings(PLAN, toy(), ranks) == ()


@pytest.mark.parametrize(
    ("changes", "code", "message", "help_text"),
    [
        (
            {"tp": (replace(Q, module="blocks.*.atn.q"),)},
            "MD050",
            "`Toy` has no module `blocks.*.atn.q`",
            "in `blocks.*`: did you mean `attn`? allowed here: `attn`, `down`, `up`",
        ),
        (
            {"splits": (replace(PLAN.splits[0], module="layers.0"),)},
            "MD050",
            "`Toy` has no module `layers.0`",
            "in the network: allowed here: `angles`, `blocks`, `entry`, `out`, `spare`",
        ),
        (
            {"sites": (AttentionSite(module="entry.*", role=SiteRole.LOCAL),)},
            "MD050",
            "`Toy` has no module `entry.*`",
            "in `entry`: there is nothing that could be written here; leave it out",
        ),
        (
            {"splits": (replace(PLAN.splits[0], module="blocks.*", value="y"),)},
            "MD051",
            "`forward` of `blocks.0` takes no `y`",
            "allowed here: `angles`, `mask`, `x`",
        ),
        (
            {"tp": (replace(Q, pieces="attn.head"),)},
            "MD051",
            "`blocks.0.attn.q` of `Toy` needs the number `attn.head`",
            ATTRIBUTE,
        ),
        (
            {"tp": (replace(KV, blocks=("attn.norm",)),)},
            "MD051",
            "`blocks.0.attn.kv` of `Toy` needs the number `attn.norm`",
            ATTRIBUTE,
        ),
        (
            {"attributes": (replace(HEADS, name="head"),)},
            "MD051",
            "`blocks.0.attn` of `Toy` has no number `head`",
            "name an attribute that counts heads or channels",
        ),
        (
            {"attributes": (replace(EACH, ratio=("heads", "norm")),)},
            "MD051",
            "`blocks.0.attn` of `Toy` has no number `norm`",
            "name an attribute that counts heads or channels",
        ),
        (
            {"tables": (replace(TABLE, pieces="attn.head"),)},
            "MD051",
            "`blocks.0.attn.table` of `Toy` needs the number `attn.head`",
            ATTRIBUTE,
        ),
        (
            {"tables": (replace(TABLE, value="weights"),)},
            "MD051",
            "`blocks.0.attn.table` of `Toy` has no parameter `weights` with a dimension `1`",
            "did you mean `weight`? allowed here: `weight`",
        ),
        (
            {"tables": (replace(TABLE, dim=0),)},
            "MD052",
            "dimension `0` of `blocks.0.attn.table` of `Toy` has `1` items, not those of heads",
            "`attn.heads` counts `4` heads",
        ),
        (
            {"tp": (replace(KV, blocks=("attn.heads", "attn.keys")),)},
            "MD052",
            "blocks of `blocks.0.attn.kv` of `Toy` make `4 + 2`, and it has `24` channels there",
            "`blocks` names all that lies side by side, in order",
        ),
        (
            {"tp": (replace(DOWN, pieces="attn.heads"),)},
            "MD052",
            "`10` channels of `blocks.0.down` of `Toy` are not those of `4` equal pieces",
            "`attn.heads` counts what lies along this dimension",
        ),
        (
            {"tp": (replace(Q, module="blocks.*.attn.table"),)},
            "MD053",
            "`blocks.0.attn.table` of `Toy` is no linear layer, but a `Embedding`",
            STYLES,
        ),
        (
            {"tp": (replace(Q, style=TpStyle.NORM),)},
            "MD053",
            "`blocks.0.attn.q` of `Toy` is no norm over channels, but a `Linear`",
            STYLES,
        ),
        (
            {"blocks": ("blocks.0",)},
            "MD053",
            "`blocks.0` of `Toy` is no list of blocks, but a `Block`",
            "name a `ModuleList` that has items",
        ),
    ],
)
def test_what_a_network_does_not_have_is_told(
    changes: dict[str, Any], code: str, message: str, help_text: str
) -> None:
    """With the plan, the path, what was found and what to write; the first block stands for all."""
    found = bind_findings(replace(PLAN, **changes), toy())
    assert {(each.code, str(each.origin)) for each in found} == {(code, "plan of `Toy`")}
    assert (found[0].message, found[0].help) == (message, help_text)


@pytest.mark.parametrize(
    ("changes", "ranks", "message"),
    [
        ({"tp": (Q,)}, 3, "`3` ranks do not divide the `4` attn.heads of `blocks.0.attn.q`"),
        ({"tp": (KV,)}, 4, "`4` ranks do not divide the `2` attn.keys of `blocks.0.attn.kv`"),
        ({"tp": (UP,)}, 4, "`4` ranks do not divide the `10` channels of `blocks.0.up`"),
        ({"attributes": (HEADS,)}, 3, "`3` ranks do not divide `heads` `4` of `blocks.0.attn`"),
        ({"tables": (TABLE,)}, 3, "`3` ranks do not divide the `4` heads of `blocks.0.attn.table`"),
    ],
)
def test_ranks_that_do_not_divide_are_told(
    changes: dict[str, Any], ranks: int, message: str
) -> None:
    """Unless the rule allows for it."""
    bare = replace(PLAN, tp=(), attributes=(), tables=())
    found = bind_findings(replace(bare, **changes), toy(), ranks)
    assert (found[0].code, found[0].message, found[0].help) == (
        "MD052",
        f"{message} of `Toy`",
        FEWER,
    )


def test_uneven_and_copied_pieces_are_allowed_where_the_rule_says_so() -> None:
    """Channels on their own may be uneven, and few heads are copied over ranks."""
    uneven = replace(DOWN, uneven=True)
    copied = replace(KV, blocks=(), copies=True)
    plan = replace(PLAN, tp=(uneven, copied), attributes=(), tables=())
    assert bind_findings(plan, toy(), 4) == ()
    cuts = [parameter_cuts(plan, toy(), 4, rank) for rank in range(4)]
    assert [each["blocks.0.down.weight"].ranges for each in cuts] == [
        ((0, 3),),
        ((3, 3),),
        ((6, 2),),
        ((8, 2),),
    ]
    assert [each["blocks.1.attn.kv.weight"].ranges for each in cuts] == [
        ((0, 12),),
        ((0, 12),),
        ((12, 12),),
        ((12, 12),),
    ]


def test_a_rank_holds_its_part_of_each_block_of_a_packed_layer() -> None:
    """Gate and entry are cut on their own; a bias of rows is whole on every rank."""
    cuts = parameter_cuts(PLAN, toy(), 2, 1)
    assert cuts["blocks.0.up.weight"] == Cut(dim=0, ranges=((5, 5), (15, 5)))
    assert cuts["blocks.0.up.bias"] == Cut(dim=0, ranges=((5, 5), (15, 5)))
    assert cuts["blocks.0.attn.kv.weight"] == Cut(dim=0, ranges=((6, 6), (18, 6)))
    assert cuts["blocks.0.attn.o.weight"] == Cut(dim=1, ranges=((12, 12),))
    assert cuts["blocks.0.attn.norm.weight"] == Cut(dim=0, ranges=((12, 12),))
    assert cuts["blocks.0.attn.table.weight"] == Cut(dim=1, ranges=((2, 2),))
    assert not {"blocks.0.attn.o.bias", "entry.weight"} & set(cuts)


def test_a_star_stands_for_items_of_lists_and_of_nothing_else() -> None:
    """The items of a block are no list."""
    network = toy()
    assert [path for path, _ in matching(network, "blocks.*.up")] == ["blocks.0.up", "blocks.1.up"]
    assert [path for path, _ in matching(network, "")] == [""]
    assert matching(network, "entry.*") == ()


def test_a_table_that_is_an_output_is_looked_at_when_it_runs() -> None:
    """Nothing is known of it before."""
    table = HeadTable(module="angles", value=0, dim=2, pieces="blocks.0.attn.heads")
    assert bind_findings(replace(PLAN, tables=(table,)), toy(), 2) == ()
