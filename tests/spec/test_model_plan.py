"""Plans of networks: what one says about itself, and every mistake that it can see alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pytest

from stagemesh.spec.cost import Part
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    Guidance,
    HeadAttribute,
    HeadTable,
    ModelPlan,
    SiteRole,
    Split,
    TpRule,
    TpStyle,
)
from stagemesh.spec.module_path import block_of, is_below, is_path, joined
from stagemesh.spec.plan_findings import plan_findings, vae_findings
from stagemesh.spec.plan_json import from_json, to_json
from stagemesh.spec.vae_plan import CausalCache, TileRule, VaePlan, VaeRole, VaeRule

SPLIT: Final = Split(module="blocks.0", value="x", dim=1, streams=("img",), rank=3)
GATHER: Final = Gather(module="out", dim=1, streams=("img",), rank=3)
SITE: Final = AttentionSite(module="blocks.*.attn", role=SiteRole.SELF, streams=("img",))
COLUMN: Final = TpRule(module="blocks.*.attn.q", style=TpStyle.COLUMN, pieces="attn.heads")
TABLE: Final = HeadTable(module="rope", value=0, dim=2, pieces="blocks.0.attn.heads")
PLAN: Final = ModelPlan(
    name="Net",
    library="nets",
    family="net",
    streams=("img",),
    whole=("txt",),
    splits=(SPLIT,),
    gathers=(GATHER,),
    sites=(SITE,),
    tp=(COLUMN,),
    attributes=(HeadAttribute(module="blocks.*.attn", name="heads"),),
    tables=(TABLE,),
    blocks=("blocks",),
    guidance=Guidance(),
)
TILES: Final = TileRule(height="h", width="w", stride_height="sh", stride_width="sw")
VAE: Final = VaePlan(
    name="Vae",
    library="nets",
    family="net",
    tiles=TILES,
    rules=(VaeRule(kind="Conv2d", role=VaeRole.CONV),),
)


def _told(found: Iterable[Diagnostic]) -> list[str]:
    """Code, message, place and help of each finding."""
    return [f"{each} | {each.help}" for each in found]


def test_a_plan_without_mistakes_has_no_findings() -> None:
    """Nor has that of a VAE."""
    assert plan_findings(PLAN) == ()
    assert vae_findings(VAE) == ()
    assert plan_findings(ModelPlan(name="Bare", library="nets", family="net")) == ()


def test_a_plan_says_what_can_be_cut() -> None:
    """Each part follows from what is declared, and nothing else does."""
    everything = {Part.WIDTH, Part.TOKENS, Part.BRANCHES, Part.SHARDS, Part.LAYERS}
    assert PLAN.parts == everything
    assert ModelPlan(name="Bare", library="nets", family="net").parts == frozenset()
    assert VAE.parts == {Part.TILES, Part.BANDS}
    assert replace(VAE, rules=()).parts == {Part.TILES}
    assert (VAE.role("Conv2d"), VAE.role("Linear")) == (VaeRole.CONV, None)


PATH_HELP: Final = "join names by dots, `*` for every item of a list, as in `blocks.*.attn.to_q`"


@pytest.mark.parametrize(
    ("changes", "code", "message", "help_text"),
    [
        (
            {"tp": (replace(COLUMN, module="blocks[0].q"),)},
            "MD040",
            "`blocks[0].q` of the plan of `Net` is no path of modules",
            PATH_HELP,
        ),
        (
            {"blocks": ("blocks.*",)},
            "MD040",
            "`blocks.*` of the plan of `Net` names blocks and not their list",
            "leave `.*` out: the list itself is named",
        ),
        (
            {"splits": (replace(SPLIT, dim=3),)},
            "MD041",
            "`x` of `blocks.0` in the plan of `Net` has no dimension `3`",
            "count dimensions from `0`, below its rank `3`",
        ),
        (
            {"gathers": (replace(GATHER, dim=-1, rank=None),)},
            "MD041",
            "`0` of `out` in the plan of `Net` has no dimension `-1`",
            "count dimensions from `0`",
        ),
        (
            {"gathers": (replace(GATHER, value=-1),)},
            "MD041",
            "`-1` of `out` in the plan of `Net` is no output",
            "count outputs from `0`",
        ),
        (
            {"splits": (replace(SPLIT, value=""),)},
            "MD041",
            "`` of `blocks.0` in the plan of `Net` is no parameter",
            "give the name that `forward` has for it",
        ),
        (
            {"tables": (replace(TABLE, dim=-1),)},
            "MD041",
            "table `rope` in the plan of `Net` has no dimension `-1`",
            "count dimensions from `0`",
        ),
        (
            {"whole": ("txt", "img")},
            "MD042",
            "stream `img` of `Net` is cut and whole at once",
            "name it in `streams` or in `whole`",
        ),
        (
            {"streams": ("img", "sound")},
            "MD042",
            "stream `sound` of the plan of `Net` is never cut",
            "add a split for it, or name it in `whole`",
        ),
        (
            {"gathers": ()},
            "MD042",
            "the plan of `Net` cuts tokens and gathers none",
            "name the module after which all tokens are needed again",
        ),
        (
            {"gathers": (replace(GATHER, streams=()),)},
            "MD042",
            "`0` of `out` in the plan of `Net` is cut along no stream",
            "name the streams that lie along it",
        ),
        (
            {"gathers": (replace(GATHER, streams=("imge",)),)},
            "MD042",
            "`0` of `out` in the plan of `Net` is cut along `imge`, which is not cut",
            "did you mean `img`? allowed here: `img`",
        ),
        (
            {"sites": (SITE, replace(SITE, module="a", role=SiteRole.LOCAL))},
            "MD043",
            "site `a` in the plan of `Net` cannot be `local`",
            "a local site names no streams: all of them are whole there",
        ),
        (
            {"sites": (replace(SITE, whole=("txt",)),)},
            "MD043",
            "site `blocks.*.attn` in the plan of `Net` cannot be `self`",
            "its streams are those of `streams`, and `whole` is empty",
        ),
        (
            {"sites": (replace(SITE, role=SiteRole.CROSS),)},
            "MD043",
            "site `blocks.*.attn` in the plan of `Net` cannot be `cross`",
            "its queries are cut and `whole` names the streams of its keys",
        ),
        (
            {"sites": (replace(SITE, role=SiteRole.JOINT, whole=("txt",)),)},
            "MD043",
            "site `blocks.*.attn` in the plan of `Net` cannot be `joint`",
            "some of its streams are cut, and `whole` names those that are not",
        ),
        (
            {"sites": (replace(SITE, role=SiteRole.CROSS, whole=("text",)),)},
            "MD043",
            "site `blocks.*.attn` in the plan of `Net` looks at `text`, which is no stream",
            "did you mean `txt`? allowed here: `img`, `txt`",
        ),
        (
            {"sites": (replace(SITE, calls=0),)},
            "MD043",
            "site `blocks.*.attn` in the plan of `Net` calls attention `0` times",
            "write `1` or more",
        ),
        (
            {"sites": ()},
            "MD043",
            "the plan of `Net` cuts tokens and names no attention over them",
            "name every module that calls attention after the first split",
        ),
        (
            {"attributes": (HeadAttribute(module="attn", name="a.heads"),)},
            "MD044",
            "`attn` has no attribute `a.heads`",
            "give the name of one attribute, without dots",
        ),
        (
            {"tp": (COLUMN, COLUMN)},
            "MD045",
            "rule `blocks.*.attn.q` is in the plan of `Net` `2` times",
            "say it once",
        ),
        (
            {"splits": (SPLIT, replace(SPLIT, dim=0))},
            "MD045",
            "split `x` of `blocks.0` is in the plan of `Net` `2` times",
            "say it once",
        ),
        (
            {"guidance": Guidance(branches=("positive", "positive"))},
            "MD046",
            "guidance of `Net` has the branches `positive, positive`",
            "name two or more branches, each once, the conditional one first",
        ),
    ],
)
def test_a_mistake_in_a_plan_is_told_with_its_place(
    changes: dict[str, Any], code: str, message: str, help_text: str
) -> None:
    """One finding for one cause, with what to write instead."""
    found = plan_findings(replace(PLAN, **changes))
    assert _told(found) == [f"error[{code}]: {message} (plan of `Net`) | {help_text}"]


@pytest.mark.parametrize(
    ("changes", "help_text"),
    [
        ({"style": TpStyle.NORM, "blocks": (1, 1)}, "a norm has neither `blocks` nor `copies`"),
        ({"blocks": (1,)}, "`blocks` has two or more shares, or names attributes"),
        ({"blocks": (1, 0)}, "shares in `blocks` are whole numbers from `1`"),
        ({"blocks": (1, "a")}, "`blocks` are all attributes, or all shares"),
        (
            {"copies": True, "pieces": None},
            "`copies` is for columns that are not packed and have `pieces`",
        ),
        (
            {"copies": True, "style": TpStyle.ROW},
            "`copies` is for columns that are not packed and have `pieces`",
        ),
        (
            {"copies": True, "uneven": True},
            "a packed module, and one whose pieces are copied, is cut evenly",
        ),
    ],
)
def test_a_rule_that_its_style_cannot_follow_is_told(
    changes: dict[str, Any], help_text: str
) -> None:
    """Packed, copied and uneven parts have their limits."""
    message = "`blocks.*.attn.q` in the plan of `Net` cannot be cut as it says"
    found = plan_findings(replace(PLAN, tp=(replace(COLUMN, **changes),)))
    assert _told(found) == [f"error[MD044]: {message} (plan of `Net`) | {help_text}"]


@pytest.mark.parametrize(
    ("changes", "message", "help_text"),
    [
        (
            {"tiles": replace(TILES, overlap_height="oh")},
            "tiles of `Vae` have no one distance along the height",
            "give `stride_height` or `overlap_height`, not both",
        ),
        (
            {"rules": VAE.rules * 2},
            "`Conv2d` has `2` rules in the plan of `Vae`",
            "say once what modules of a class do",
        ),
        (
            {"cache": CausalCache.LIST},
            "the plan of `Vae` says `list` of its cache",
            "`counted` names the class that a list counts, and only then",
        ),
        (
            {"halves": ()},
            "the plan of `Vae` names no modules that a picture goes through",
            "name them in `halves`, such as `decoder`",
        ),
    ],
)
def test_a_mistake_in_the_plan_of_a_vae_is_told(
    changes: dict[str, Any], message: str, help_text: str
) -> None:
    """Each with its place and what to write."""
    found = vae_findings(replace(VAE, **changes))
    assert _told(found) == [f"error[MD047]: {message} (plan of `Vae`) | {help_text}"]


def test_joint_sites_see_what_is_cut_and_what_is_whole() -> None:
    """The text of two streams may be whole on every rank."""
    joint = replace(SITE, role=SiteRole.JOINT, streams=("txt", "img"), whole=("txt",))
    assert plan_findings(replace(PLAN, sites=(joint,))) == ()


def test_paths_stand_for_modules() -> None:
    """A star is any item; what lies inside of a module is below its path."""
    assert all(map(is_path, ("", "blocks", "blocks.*.attn.to_out.0", "final.2-1")))
    assert not any(map(is_path, ("*", "*.a", "a..b", "a.", "a b", "a.**")))
    assert is_below("blocks.3.attn.to_q", "blocks.*.attn")
    assert is_below("anything", "")
    assert not is_below("blocks.3", "blocks.*.attn")
    assert not is_below("blocks.3.ff", "blocks.*.attn")
    assert (block_of("blocks.*.attn.0"), block_of("rope")) == ("blocks.*", "")
    assert joined("", "a", "b.c") == "a.b.c"


def test_a_plan_is_the_same_after_json() -> None:
    """Fields with their default are left out, and come back."""
    plan = replace(
        PLAN,
        sites=(),
        attributes=(),
        tables=(),
        guidance=None,
        tp=(replace(COLUMN, blocks=(1, 2)),),
    )
    written = json.loads(json.dumps(to_json(plan)))
    assert written["splits"] == [
        {"module": "blocks.0", "value": "x", "dim": 1, "streams": ["img"], "rank": 3}
    ]
    assert "guidance" not in written
    assert from_json(written) == plan
    assert to_json(SITE)["role"] == "self"
    assert to_json(replace(PLAN, guidance=Guidance()))["guidance"] == {}
