"""What a plan of a network can get wrong by itself, without the network. Everything is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    ModelPlan,
    SiteRole,
    Split,
    TpRule,
    TpStyle,
)
from stagemesh.spec.module_path import is_path
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.vae_plan import CausalCache, VaePlan

_Finding: TypeAlias = tuple[str, str, str]
"""Code, message and help."""

_FEWEST: Final = 2
"""Branches of guidance, blocks of a packed module."""


def plan_findings(plan: ModelPlan) -> tuple[Diagnostic, ...]:
    """Say what is wrong with the plan of a network, naming it."""
    checks: tuple[Callable[[ModelPlan], Iterator[_Finding]], ...] = (
        _wrong_paths,
        _wrong_dims,
        _wrong_streams,
        _wrong_sites,
        _wrong_styles,
        _twice,
        _wrong_guidance,
    )
    return _told(plan.name, (each for check in checks for each in check(plan)))


def vae_findings(plan: VaePlan) -> tuple[Diagnostic, ...]:
    """Say what is wrong with the plan of a VAE, naming it."""
    return _told(plan.name, _wrong_vae(plan))


def _told(name: str, found: Iterable[_Finding]) -> tuple[Diagnostic, ...]:
    origin = Origin(layer=Layer.PIPELINE, source=f"plan of `{name}`")
    return tuple(
        Diagnostic(code=code, message=message, origin=origin, help=help_text)
        for code, message, help_text in found
    )


# --- paths, dimensions, streams ------------------------------------------------------------------


def _wrong_paths(plan: ModelPlan) -> Iterator[_Finding]:
    """Paths that no module can have, and lists of blocks that are no lists."""
    help_text = "join names by dots, `*` for every item of a list, as in `blocks.*.attn.to_q`"
    entries = (
        *(plan.splits + plan.gathers + plan.sites),
        *(plan.tp + plan.attributes + plan.tables),
    )
    for path in dict.fromkeys((*(entry.module for entry in entries), *plan.blocks)):
        if not is_path(path):
            yield "MD040", f"`{path}` of the plan of `{plan.name}` is no path of modules", help_text
    for path in plan.blocks:
        if path.endswith("*"):
            message = f"`{path}` of the plan of `{plan.name}` names blocks and not their list"
            yield "MD040", message, "leave `.*` out: the list itself is named"


def _wrong_dims(plan: ModelPlan) -> Iterator[_Finding]:
    """Dimensions that the tensor does not have, and outputs before the first."""
    for entry in _token_entries(plan):
        what = f"`{entry.value}` of `{entry.module}` in the plan of `{plan.name}`"
        if entry.dim < 0 or (entry.rank is not None and entry.dim >= entry.rank):
            known = "" if entry.rank is None else f", below its rank `{entry.rank}`"
            message = f"{what} has no dimension `{entry.dim}`"
            yield "MD041", message, f"count dimensions from `0`{known}"
        if isinstance(entry.value, int) and entry.value < 0:
            yield "MD041", f"{what} is no output", "count outputs from `0`"
        if isinstance(entry, Split) and entry.value == "":
            yield "MD041", f"{what} is no parameter", "give the name that `forward` has for it"
    for table in plan.tables:
        if table.dim < 0:
            what = f"table `{table.module}` in the plan of `{plan.name}`"
            yield "MD041", f"{what} has no dimension `{table.dim}`", "count dimensions from `0`"


def _token_entries(plan: ModelPlan) -> tuple[Split | Gather, ...]:
    return (*plan.splits, *plan.gathers)


def _wrong_streams(plan: ModelPlan) -> Iterator[_Finding]:
    """Streams that nobody declares, that are never cut, or that are cut and whole."""
    for stream in plan.streams:
        if stream in plan.whole:
            message = f"stream `{stream}` of `{plan.name}` is cut and whole at once"
            yield "MD042", message, "name it in `streams` or in `whole`"
        if not any(stream in split.streams for split in plan.splits):
            message = f"stream `{stream}` of the plan of `{plan.name}` is never cut"
            yield "MD042", message, "add a split for it, or name it in `whole`"
    if plan.splits and not plan.gathers:
        message = f"the plan of `{plan.name}` cuts tokens and gathers none"
        yield "MD042", message, "name the module after which all tokens are needed again"
    for entry in _token_entries(plan):
        what = f"`{entry.value}` of `{entry.module}` in the plan of `{plan.name}`"
        if not entry.streams:
            yield "MD042", f"{what} is cut along no stream", "name the streams that lie along it"
        for stream in entry.streams:
            if stream not in plan.streams:
                message = f"{what} is cut along `{stream}`, which is not cut"
                yield "MD042", message, did_you_mean(stream, plan.streams)


# --- attention, width ----------------------------------------------------------------------------


def _wrong_sites(plan: ModelPlan) -> Iterator[_Finding]:
    """Sites whose role and streams contradict each other."""
    for site in plan.sites:
        what = f"site `{site.module}` in the plan of `{plan.name}`"
        reason = _contradiction(site, plan)
        if reason is not None:
            yield "MD043", f"{what} cannot be `{site.role.value}`", reason
        for stream in (*site.streams, *site.whole):
            if stream not in (*plan.streams, *plan.whole):
                known = (*plan.streams, *plan.whole)
                message = f"{what} looks at `{stream}`, which is no stream"
                yield "MD043", message, did_you_mean(stream, known)
        if site.calls < 1:
            yield "MD043", f"{what} calls attention `{site.calls}` times", "write `1` or more"
    if plan.splits and not any(site.role is not SiteRole.LOCAL for site in plan.sites):
        message = f"the plan of `{plan.name}` cuts tokens and names no attention over them"
        yield "MD043", message, "name every module that calls attention after the first split"


def _contradiction(site: AttentionSite, plan: ModelPlan) -> str | None:
    """Say what the role of a site needs and does not have."""
    is_cut = [stream in plan.streams for stream in site.streams]
    all_cut = bool(is_cut) and all(is_cut)
    wrong, reason = {
        SiteRole.LOCAL: (
            bool(site.streams or site.whole),
            "a local site names no streams: all of them are whole there",
        ),
        SiteRole.SELF: (
            bool(site.whole) or not all_cut,
            "its streams are those of `streams`, and `whole` is empty",
        ),
        SiteRole.CROSS: (
            not site.whole or not all_cut,
            "its queries are cut and `whole` names the streams of its keys",
        ),
        SiteRole.JOINT: (
            not site.whole or not any(is_cut) or all_cut,
            "some of its streams are cut, and `whole` names those that are not",
        ),
    }[site.role]
    return reason if wrong else None


def _wrong_styles(plan: ModelPlan) -> Iterator[_Finding]:
    """Rules that ask for what their style cannot do."""
    for rule in plan.tp:
        reason = _misuse(rule)
        if reason is not None:
            what = f"`{rule.module}` in the plan of `{plan.name}`"
            yield "MD044", f"{what} cannot be cut as it says", reason
    for attribute in plan.attributes:
        if not attribute.name.isidentifier():
            message = f"`{attribute.module}` has no attribute `{attribute.name}`"
            yield "MD044", message, "give the name of one attribute, without dots"


def _misuse(rule: TpRule) -> str | None:
    """The first thing that a rule asks for and its style cannot do."""
    is_column, blocks = rule.style is TpStyle.COLUMN, rule.blocks
    reasons = (
        (
            rule.style is TpStyle.NORM and (bool(blocks) or rule.copies),
            "a norm has neither `blocks` nor `copies`",
        ),
        (
            0 < len(blocks) < _FEWEST and isinstance(blocks[0], int),
            "`blocks` has two or more shares, or names attributes",
        ),
        (
            any(isinstance(block, int) and block < 1 for block in blocks),
            "shares in `blocks` are whole numbers from `1`",
        ),
        (
            len({type(block) for block in blocks}) > 1,
            "`blocks` are all attributes, or all shares",
        ),
        (
            rule.copies and (not is_column or rule.pieces is None or bool(blocks)),
            "`copies` is for columns that are not packed and have `pieces`",
        ),
        (
            rule.uneven and (bool(blocks) or rule.copies),
            "a packed module, and one whose pieces are copied, is cut evenly",
        ),
    )
    return next((reason for is_wrong, reason in reasons if is_wrong), None)


def _twice(plan: ModelPlan) -> Iterator[_Finding]:
    """The same thing said twice."""
    said = [
        *(("split", f"{each.value}` of `{each.module}") for each in plan.splits),
        *(("gather", f"{each.value}` of `{each.module}") for each in plan.gathers),
        *(("site", each.module) for each in plan.sites),
        *(("rule", each.module) for each in plan.tp),
        *(("attribute", f"{each.name}` of `{each.module}") for each in plan.attributes),
        *(("table", f"{each.value}` of `{each.module}") for each in plan.tables),
        *(("list of blocks", each) for each in plan.blocks),
    ]
    for (kind, what), count in Counter(said).items():
        if count > 1:
            message = f"{kind} `{what}` is in the plan of `{plan.name}` `{count}` times"
            yield "MD045", message, "say it once"


def _wrong_guidance(plan: ModelPlan) -> Iterator[_Finding]:
    """Guidance that has nothing to combine."""
    if plan.guidance is None:
        return
    branches = plan.guidance.branches
    if len(branches) < _FEWEST or len(set(branches)) < len(branches):
        got = ", ".join(branches)
        message = f"guidance of `{plan.name}` has the branches `{got}`"
        yield "MD046", message, "name two or more branches, each once, the conditional one first"


# --- VAEs ----------------------------------------------------------------------------------------


def _wrong_vae(plan: VaePlan) -> Iterator[_Finding]:
    """Tiles without a distance, classes with two rules, and caches that nothing counts."""
    tiles = plan.tiles
    for side, stride, overlap in (
        ("height", tiles.stride_height, tiles.overlap_height),
        ("width", tiles.stride_width, tiles.overlap_width),
    ):
        if (stride is None) == (overlap is None):
            message = f"tiles of `{plan.name}` have no one distance along the {side}"
            yield "MD047", message, f"give `stride_{side}` or `overlap_{side}`, not both"
    for kind, count in Counter(rule.kind for rule in plan.rules).items():
        if count > 1:
            message = f"`{kind}` has `{count}` rules in the plan of `{plan.name}`"
            yield "MD047", message, "say once what modules of a class do"
    if (plan.counted is None) == (plan.cache is CausalCache.LIST):
        message = f"the plan of `{plan.name}` says `{plan.cache.value}` of its cache"
        yield "MD047", message, "`counted` names the class that a list counts, and only then"
    if not plan.halves:
        message = f"the plan of `{plan.name}` names no modules that a picture goes through"
        yield "MD047", message, "name them in `halves`, such as `decoder`"
