"""Strategies given as Python values are read as the file that says the same."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import cast

import pytest

from stagemesh.config.document import Findings
from stagemesh.config.inputs import ConfigInput
from stagemesh.config.place import Run
from stagemesh.config.stages import Stages
from stagemesh.config.strategy import read_stacks
from stagemesh.config.strategy_specs import SOURCE, file_form, spec_of, written
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.hooks import HookCategory, KernelSpec, LayerHookSpec
from stagemesh.spec.patterns import (
    Broadcast,
    FanInByStage,
    PartitionByHash,
    PipelineMicrobatch,
    Policy,
    RouteByStage,
    Routing,
    TakeRank,
    Union,
)
from stagemesh.spec.registry import AXES
from stagemesh.spec.strategy import MeshAxis, StrategySpec, mesh_axis_kinds
from stagemesh.spec.unset import UNSET, Unset
from tests.config.speech import CATALOG, Speech, size, stage, told

TP2 = StrategySpec(mesh_axis=MeshAxis(kind="tp", size=2))


def as_file(*specs: object) -> tuple[list[object], list[str]]:
    """Return the entries of one stage, and what was found."""
    findings: Findings = []
    document = written({"thinker": specs}, CATALOG.axes, findings)
    stacks = cast("dict[str, list[object]]", document["strategies"])
    return stacks["thinker"], [shown(found) for found in findings]


def shown(found: Diagnostic) -> str:
    """Show a finding as `code path: message`."""
    assert found.origin is not None
    assert found.origin.source == SOURCE
    return f"{found.code} {found.origin.path}: {found.message}"


def test_kinds_of_axes_are_those_of_the_registry() -> None:
    """An enum made when it is asked for, whose members are text."""
    kinds = mesh_axis_kinds()
    assert issubclass(kinds, StrEnum)
    assert {kind.value for kind in kinds} == set(AXES.modules())
    assert kinds["SP_ULYSSES"] == "sp_ulysses"
    assert mesh_axis_kinds() is kinds


def test_a_spec_is_written_as_an_entry() -> None:
    """Only what was said; patterns that are the axis' own say nothing."""
    hook = LayerHookSpec(hook_id="h", target="*.attn", category=HookCategory.ATTENTION_PRE)
    kernel = KernelSpec(kernel_id="k", target="*", group_axis="tp", requires_collective=True)
    kinds = mesh_axis_kinds()
    entries, found = as_file(
        TP2,
        StrategySpec(
            mesh_axis=MeshAxis(kind=kinds["DP"], size=2),
            name="groups",
            routing=RouteByStage(policy=Policy.LEAST_QUEUE),
            aggregation=Union(),
            layer_hook_specs=(hook,),
            kernel_specs=(kernel,),
            shard_extension={"l1_owner": "engine", "local": 2},
        ),
        StrategySpec(
            mesh_axis=MeshAxis(kind="stage_replica", size=2),
            routing=PartitionByHash(key="user"),
            aggregation=FanInByStage(),
        ),
        StrategySpec(
            mesh_axis=MeshAxis(kind="pp", size=2),
            routing=PipelineMicrobatch(),
        ),
    )
    assert found == []
    assert entries[0] == {"axis": "tp", "size": 2}
    assert entries[1] == {
        "axis": "dp",
        "size": 2,
        "name": "groups",
        "routing": "least_queue",
        "l1_owner": "engine",
        "local": 2,
        "layer_hook_specs": (
            {"hook_id": "h", "target": "*.attn", "category": "attention_pre", "priority": 0},
        ),
        "kernel_specs": (
            {
                "kernel_id": "k",
                "target": "*",
                "category": "other",
                "priority": 0,
                "group_axis": "tp",
                "requires_collective": True,
            },
        ),
    }
    assert entries[2] == {"axis": "stage_replica", "size": 2, "routing": "hash", "key": "user"}
    assert entries[3] == {"axis": "pp", "size": 2}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            StrategySpec(mesh_axis=MeshAxis(kind="tp", size=2), routing=RouteByStage()),
            (
                "AX008 strategies.thinker[0].routing: routing of `thinker.tp` is `Broadcast()`,"
                " got `RouteByStage(round_robin)`"
            ),
        ),
        (
            StrategySpec(
                mesh_axis=MeshAxis(kind="pp", size=2),
                routing=PipelineMicrobatch(num_microbatches=4),
            ),
            (
                "AX008 strategies.thinker[0].routing: routing of `thinker.pp` is"
                " `PipelineMicrobatch(1)`, got `PipelineMicrobatch(4)`"
            ),
        ),
        (
            StrategySpec(mesh_axis=MeshAxis(kind="dp", size=2), routing=Broadcast()),
            (
                "AX008 strategies.thinker[0].routing: routing of `thinker.dp` is"
                " `RouteByStage(round_robin)`, got `Broadcast()`"
            ),
        ),
        (
            StrategySpec(mesh_axis=MeshAxis(kind="tp", size=2), aggregation=TakeRank(rank=1)),
            (
                "AX008 strategies.thinker[0].aggregation: aggregation of `thinker.tp` is"
                " `TakeRank(0)`, got `TakeRank(1)`"
            ),
        ),
        (
            StrategySpec(
                mesh_axis=MeshAxis(kind="tp", size=2), aggregation=cast("Union", "all of them")
            ),
            (
                "AX008 strategies.thinker[0].aggregation: aggregation of `thinker.tp` is"
                " `TakeRank(0)`, got `all of them`"
            ),
        ),
        (
            StrategySpec(mesh_axis=MeshAxis(kind="tp", size=2), shard_extension={"size": 4}),
            (
                "AX009 strategies.thinker[0].shard_extension: `shard_extension` of `thinker.tp`"
                " cannot give `size`"
            ),
        ),
    ],
)
def test_what_a_file_has_no_words_for_is_told(spec: StrategySpec, found: str) -> None:
    """Patterns that are not those of the axis, and keys that have a field of their own."""
    assert as_file(spec)[1] == [found]


def test_specs_are_taken_where_a_file_is(speech: Speech) -> None:
    """By stage; entries as a file has them may stand beside them."""
    loaded = speech.load(
        strategy={"thinker": [TP2, {"axis": "dp", "size": 2}], "talker": [], "code2wav": (TP2,)}
    )
    assert told(loaded) == []
    assert size(loaded, "thinker", "tp") == size(loaded, "thinker", "dp") == 2
    assert size(loaded, "talker", "tp") is UNSET
    origin = stage(loaded, "code2wav").axes["tp"].origin
    assert (origin.source, origin.path) == ("strategy_config", "strategies.code2wav[0].axis")


def test_what_is_wrong_with_specs_is_told_like_in_a_file(speech: Speech) -> None:
    """Nothing that somebody may pass gives a traceback."""
    odd = StrategySpec(
        mesh_axis=cast("MeshAxis", "tp"),
        layer_hook_specs=cast("tuple[LayerHookSpec, ...]", ("x",)),
        shard_extension=cast("dict[str, object]", 4),
    )
    wrong = StrategySpec(mesh_axis=MeshAxis(kind=cast("str", 3), size=cast("int", "2")))
    loaded = speech.load(strategy={"thinker": [odd, wrong, TP2], "talkr": [TP2], "talker": TP2})
    assert [found.partition(": ")[2] for found in told(loaded)] == [
        "`thinker[0].mesh_axis` must be a `MeshAxis`, got text `tp`",
        "`thinker.tp.shard_extension` must be a mapping, got `4`",
        "`talker` must be a list of `StrategySpec`, got `StrategySpec(mesh_axis=MeshAxis(kind='t…`",
        "`thinker.tp.layer_hook_specs[0]` must be a mapping, got text `x`",
        "`thinker[1].axis` must be text, got `3`",
        "`thinker[1].size` must be a whole number, got text `2`",
        "axis `tp` is given twice for `thinker`",
        "no stage `talkr` in this pipeline",
    ]


@pytest.mark.parametrize("given", [[TP2], (TP2,), TP2, iter([TP2])])
def test_specs_need_the_name_of_a_stage(speech: Speech, given: object) -> None:
    """They are told once, with the form that is taken."""
    loaded = speech.load(strategy=cast("ConfigInput", given))
    [found] = loaded.diagnostics
    assert (found.code, found.help) == ("CF012", "name the stage: `{STAGE: [StrategySpec(...)]}`")


def test_one_spec_is_no_stack(speech: Speech) -> None:
    """The remedy is the list around it; what is none at all is told as in a file."""
    found, other = speech.load(strategy={"thinker": TP2, "talker": 3}).diagnostics
    assert other.message == "`talker` must be a list of axes, got `3`"
    assert (found.code, found.help) == ("CF012", "put it into a list: `[StrategySpec(...)]`")
    assert found.origin is not None
    assert found.origin.path == "strategies.thinker"


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize(
    ("stack", "path", "told_as"),
    [
        ({"a": TP2}, "", "`thinker` must be a list of `StrategySpec`, got a mapping"),
        ({"a": [TP2]}, "", "`thinker` must be a list of `StrategySpec`, got a mapping"),
        ({TP2.mesh_axis.kind}, "", "`thinker` must be a list of `StrategySpec`, got a `set`"),
        (iter([TP2]), "", "`thinker` must be a list of `StrategySpec`, got a `list_iterator`"),
        ([[TP2]], "[0]", "`thinker[0]` must be a `StrategySpec`, got a list"),
        ([TP2, {"a": TP2}], "[1]", "`thinker[1]` must be a `StrategySpec`, got a mapping"),
        ([iter(())], "[0]", "`thinker[0]` must be a `StrategySpec`, got a `tuple_iterator`"),
    ],
)
def test_specs_in_another_form_are_told_once(
    speech: Speech, stack: object, path: str, told_as: str, *, root: bool
) -> None:
    """Where they stand, with and without the root of a file."""
    given = {"thinker": stack}
    [found] = speech.load(strategy={"strategies": given} if root else given).diagnostics
    assert (found.code, found.message) == ("CF012", told_as)
    assert found.origin is not None
    assert found.origin.path == f"strategies.thinker{path}"
    assert "list" in str(found.help)


def test_a_set_inside_of_an_entry_is_told_at_its_own_key(speech: Speech) -> None:
    """The entry has the form of a file's, so no spec was meant."""
    entry = {"axis": "tp", "size": {2}}
    [found] = speech.load(strategy={"strategies": {"thinker": [entry]}}).diagnostics
    assert (found.code, found.message) == ("CF005", "a value of type `set` has no place here")
    assert found.origin is not None
    assert found.origin.path == "strategies.thinker[0].size"


def test_what_holds_itself_is_looked_into_no_further(speech: Speech) -> None:
    """It is told as in any mapping: as what has no end, and as what is no entry."""
    endless: list[object] = []
    endless.append(endless)
    loaded = speech.load(strategy={"strategies": {"thinker": endless}})
    assert told(loaded) == [
        "CF005 strategy_config: nested deeper than `64` levels",
        "CF012 strategy_config: `thinker[0]` must be a mapping with `axis` and `size`, got a list",
    ]


def test_specs_may_stand_where_a_file_has_entries(speech: Speech) -> None:
    """Below `strategies`; a spec without an extension has no options."""
    plain = replace(TP2, shard_extension=None)
    loaded = speech.load(strategy={"strategies": {"thinker": [plain]}})
    assert told(loaded) == []
    assert size(loaded, "thinker", "tp") == 2
    loaded = speech.load(strategy={"strategies": {"thinker": [plain]}, "version": 1})
    assert told(loaded) == ["CF010 strategy_config: unknown key `version` in `strategy_config`"]


@pytest.mark.parametrize("given", [[TP2], [[TP2]], TP2])
def test_specs_below_the_root_need_the_name_of_a_stage_as_well(
    speech: Speech, given: object
) -> None:
    """`strategies` is no stage here, as it is none in a file."""
    [found] = speech.load(strategy={"strategies": given}).diagnostics
    assert (found.code, found.help) == ("CF012", "name the stage: `{STAGE: [StrategySpec(...)]}`")
    assert found.message.startswith("`strategies` must be a mapping from stages")


def test_a_policy_is_no_routing(speech: Speech) -> None:
    """An axis that has a choice says how it is written; others say that there is none."""
    specs = [
        StrategySpec(mesh_axis=MeshAxis(kind=kind, size=2), routing=cast("Routing", "random"))
        for kind in ("stage_replica", "tp")
    ]
    found = speech.load(strategy={"thinker": specs}).diagnostics
    assert [each.code for each in found] == ["AX008", "AX008"]
    assert [(each.help or "").partition(" ")[0] for each in found] == ["write", "leave"]


def test_a_mapping_without_specs_is_a_file(speech: Speech) -> None:
    """Without `strategies` it is refused as a file is, with the rewrite."""
    loaded = speech.load(strategy={"thinker": [{"axis": "tp", "size": 2}], "talker": "x"})
    assert told(loaded) == ["CF011 strategy_config: `strategies` is missing"]
    forms: tuple[ConfigInput | Unset, ...] = ({"thinker": []}, {}, "file.yaml", UNSET)
    for given in forms:
        assert file_form(given, CATALOG.axes, []) is given


def test_a_file_comes_back_as_specs_that_write_the_same_file(speech: Speech) -> None:
    """Patterns and labels filled in; written again they change nothing."""
    entries = [
        {"axis": "tp", "size": 2, "l1_owner": "engine"},
        {
            "axis": "stage_replica",
            "size": 2,
            "routing": "hash",
            "key": "user",
            "name": "twins",
            "kernel_specs": [{"kernel_id": "k", "target": "*"}],
        },
    ]
    document = speech.load(strategy={"strategies": {"thinker": entries}}).documents[0]
    run = Run()
    (stack,) = read_stacks(document, Stages(pipeline=None), CATALOG.axes, run)
    tp, replicas = map(spec_of, stack.entries)
    assert run.findings == []
    assert (tp.name, tp.routing, tp.aggregation) == ("tp", Broadcast(), TakeRank())
    assert replicas.routing == RouteByStage(policy=Policy.HASH)
    assert replicas.kernel_specs == (KernelSpec(kernel_id="k", target="*"),)
    assert replicas.shard_extension == {"key": "user"}
    first = speech.load(strategy={"strategies": {"thinker": entries}})
    again = speech.load(strategy={"thinker": [tp, replicas]})
    assert stage(again, "thinker").axes == stage(first, "thinker").axes
