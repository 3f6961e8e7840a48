"""What is known about a field: everything that its declarations say."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.plan.explain_field import FieldDoc, explain_field, field_names, field_text
from stagemesh.spec.pipeline import ExecutionType
from tests.plan.making import TOY, ToyParams, catalog, pipeline, stage
from tests.plan.saving import Voice

TOYS = catalog(
    pipeline(
        stage(0, "thinker"),
        stage(1, "talker", options=Voice, params=ToyParams),
        stage(2, "dit", execution_type=ExecutionType.DIFFUSION),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Arguments of an engine."""

    quirk: int = 3
    """Nobody else has it."""


EVERY_KIND = ("diffusion", "llm_ar", "llm_generation")


def known(path: str, installed: Catalog = TOYS) -> FieldDoc:
    """What is known about a field that there is."""
    doc = explain_field(path, installed, {})
    assert doc is not None
    return doc


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("pipeline", ["the deploy file"]),
        ("async_chunk", ["the deploy file", "every stage"]),
        ("devices", ["every stage"]),
        ("max_num_seqs", ["every stage", "engine `toy`"]),
        ("gpu_memory_utilization", ["stages of kind `llm_ar`, `llm_generation`"]),
        ("tp", ["axis `tp`"]),
        ("tp.routing", ["axis `tp`"]),
        ("tensor_parallel_size", ["axis `tp`"]),
        ("enable_expert_parallel", ["axis `ep`"]),
        ("sp_ulysses.mode", ["axis `sp_ulysses`"]),
        ("api_server_count", ["the start"]),
        ("default_sampling_params", ["the start", "every stage"]),
        (
            "default_sampling_params.temperature",
            ["engine `toy`", "stage `talker` of `toy`"],
        ),
        ("additional_config.pitch", ["stage `talker` of `toy`"]),
        ("connectors", ["the deploy file"]),
        ("connectors.shm", ["the deploy file"]),
        ("connectors.shm.name", ["the deploy file"]),
        ("connectors.shm.extra.size", ["the deploy file"]),
        ("env.COLOUR", ["every stage"]),
    ],
)
def test_a_field_is_known_to_its_owners(path: str, owners: list[str]) -> None:
    """In the order: files, stages, engines, models."""
    doc = known(path)
    assert doc.path == path
    assert [each.owner for each in doc.declarations] == owners
    assert all(each.doc and each.type for each in doc.declarations)


@pytest.mark.parametrize(
    "path",
    [
        "nonsense",
        "thinker.nonsense",
        "tp.nonsense",
        "tp.size.more",
        "connectors.shm.nonsense",
        "default_sampling_params.nonsense",
        "max_num_seqs.more",
        "one.two.devices",
        "",
        ".",
    ],
)
def test_what_is_no_field_is_not_known(path: str) -> None:
    """However much of it would be one."""
    assert explain_field(path, TOYS, {}) is None


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("thinker.tp", "tp"),
        ("stages.devices", "devices"),
        ("stages[0].devices", "devices"),
        ("strategies.thinker.tp", "tp"),
        ("7.max_num_seqs", "max_num_seqs"),
        ("stages", "stages"),
    ],
)
def test_a_stage_before_a_field_is_left_out(path: str, field: str) -> None:
    """As files and plans write it."""
    assert known(path).path == field


@pytest.mark.parametrize(
    ("path", "written", "kinds"),
    [
        ("pipeline", ["the root of a deploy file"], ()),
        (
            "devices",
            ["an entry of `stages` in a deploy file", "`--set` and `--stage-overrides`"],
            EVERY_KIND,
        ),
        (
            "dtype",
            [
                "the root of a deploy file",
                "an entry of `stages` in a deploy file",
                "`--set` and `--stage-overrides`",
            ],
            EVERY_KIND,
        ),
        (
            "tp",
            ["an entry of a strategy file", "a deploy file as `tensor_parallel_size`"],
            EVERY_KIND,
        ),
        ("tp.routing", ["an entry of a strategy file"], EVERY_KIND),
        (
            "ring_degree",
            ["an entry of `stages` in a deploy file", "`--set` and `--stage-overrides`"],
            ("diffusion",),
        ),
        ("connectors.shm.name", ["the root of a deploy file"], ()),
    ],
)
def test_it_is_known_where_a_field_is_written_and_who_has_it(
    path: str, written: list[str], kinds: tuple[str, ...]
) -> None:
    """Places in files and kinds of stage."""
    doc = known(path)
    assert (list(doc.written), doc.kinds) == (written, kinds)


def test_a_field_of_an_engine_is_one_of_the_kinds_that_it_runs() -> None:
    """Though no kind of stage lists it."""
    own = replace(TOY, name="own", options=Own)
    doc = known("quirk", replace(TOYS, engines={"own": own}))
    assert doc.kinds == ("llm_ar", "llm_generation")
    assert [(each.owner, each.default) for each in doc.declarations] == [("engine `own`", 3)]


def test_flags_of_a_field_are_told() -> None:
    """Those of its path."""
    doc = explain_field("thinker.max_num_seqs", TOYS, {"max_num_seqs": ["--max-num-seqs"]})
    assert doc is not None
    assert doc.flags == ("--max-num-seqs",)


def test_defaults_are_values_and_some_fields_have_none() -> None:
    """A field that must be given says so."""
    values = {path: known(path).declarations[-1] for path in ("tp", "env", "connectors.x.name")}
    told = {path: (each.required, each.default) for path, each in values.items()}
    assert told == {"tp": (False, 1), "env": (False, {}), "connectors.x.name": (True, None)}


def test_a_field_is_shown_with_what_each_owner_says() -> None:
    """What is not overridden is not said to be null; members are listed."""
    text = field_text(known("max_num_seqs"), 60)
    assert (
        text
        == """\
max_num_seqs

written in  an entry of `stages` in a deploy file, `--set`
            and `--stage-overrides`
stages      diffusion, llm_ar, llm_generation

every stage: whole number >= 1; not set by default
  Most requests that are computed together.

engine `toy`: whole number; default 8
  Refused above 1000.
"""
    )
    shown = field_text(known("connectors"))
    assert shown.endswith("  members: name, extra\n")
    assert "must be given" in field_text(known("connectors.x.name"))


def test_every_first_part_can_be_suggested() -> None:
    """Fields of files and stages, and axes."""
    names = field_names(TOYS)
    assert {"async_chunk", "max_num_seqs", "ring_degree", "tp"} <= set(names)
    assert all(explain_field(name, TOYS, {}) is not None for name in names)


def test_a_field_that_sets_an_option_of_an_axis_is_that_option() -> None:
    """With its type, default and text."""
    [declared] = known("ulysses_mode").declarations
    assert (declared.owner, declared.default) == ("axis `sp_ulysses`", "advanced_uaa")
    written = known("sp_ulysses.mode").written
    assert written == ("an entry of a strategy file", "a deploy file as `ulysses_mode`")


def test_flags_of_an_axis_are_those_of_its_fields() -> None:
    """Of its size and of each option apart."""
    flags = {"ulysses_degree": ["--usp"], "ulysses_mode": ["--ulysses-mode"]}
    size = explain_field("sp_ulysses", TOYS, flags)
    mode = explain_field("dit.sp_ulysses.mode", TOYS, flags)
    assert size is not None
    assert mode is not None
    assert (size.flags, mode.flags) == (("--usp",), ("--ulysses-mode",))
