"""Edges: connectors, chunks and bridges."""

from __future__ import annotations

import pytest

from stagemesh.config.plain import plain_fields
from stagemesh.config.settings import ConnectorSettings, Settings
from stagemesh.connectors.shared_memory import SharedMemoryOptions
from stagemesh.plan.build import PlanRequest
from stagemesh.plan.values import EdgePlan
from stagemesh.spec.pipeline import PipelineConfig
from tests.plan.making import (
    Said,
    attempt,
    errors,
    pipeline,
    place,
    planned,
    request,
    solo,
    sourced,
    stage,
)

SMALL = SharedMemoryOptions(arena_bytes=2**18)
BIG = SharedMemoryOptions(arena_bytes=2**19)


def chain() -> PipelineConfig:
    """`a` streams into `b`, which hands its output to `c` whole."""
    return pipeline(
        stage(
            0,
            "a",
            produces_chunks=True,
            async_chunk_process_next_stage_input_func="m:chunks",
            custom_process_next_stage_input_func="m:whole",
        ),
        stage(1, "b", async_chunk_process_next_stage_input_func="m:never"),
        stage(2, "c"),
    )


def given(
    said: dict[str, Said] | None = None,
    *,
    model: PipelineConfig | None = None,
    async_chunk: object = None,
    **connectors: SharedMemoryOptions,
) -> PlanRequest:
    """A request with named connectors."""
    return request(
        model or chain(),
        said,
        settings=Settings(
            fields={} if async_chunk is None else {"async_chunk": sourced(async_chunk)},
            connectors={
                name: ConnectorSettings(
                    name=name, connector="shared_memory", options=options, origin=place()
                )
                for name, options in connectors.items()
            },
            stages=(),
        ),
    )


def outgoing(**named: str) -> Said:
    """What a stage says about its outgoing edges."""
    return Said(fields={"output_connectors": named})


def incoming(**named: str) -> Said:
    """What a stage says about its incoming edges."""
    return Said(fields={"input_connectors": named})


def sizes(plan_request: PlanRequest) -> list[object]:
    """The arena of every edge."""
    return [edge.options["arena_bytes"] for edge in planned(plan_request).edges]


def test_edges_follow_from_the_pipeline() -> None:
    """Each has the default connector; chunks flow where the producer makes them."""
    options = plain_fields(SharedMemoryOptions())
    assert planned(given()).edges == (
        EdgePlan(
            source=0,
            target=1,
            connector="shared_memory",
            options=options,
            payload_type="text",
            bridge="m:chunks",
            chunked=True,
        ),
        EdgePlan(
            source=1,
            target=2,
            connector="shared_memory",
            options=options,
            payload_type="text",
            bridge=None,
            chunked=False,
        ),
    )


def test_without_chunks_the_other_bridge_is_taken() -> None:
    """`async_chunk: false` hands over whole payloads everywhere."""
    plan = planned(given(async_chunk=False))
    assert not plan.async_chunk
    assert [(edge.bridge, edge.chunked) for edge in plan.edges] == [
        ("m:whole", False),
        (None, False),
    ]


@pytest.mark.parametrize("async_chunk", [None, False])
def test_a_single_stage_hands_over_nothing(async_chunk: object) -> None:
    """Whether that is said or not."""
    assert not planned(given(model=solo(), async_chunk=async_chunk)).async_chunk


def test_a_single_stage_without_chunks_cannot_be_asked_for_them() -> None:
    """There is nothing that the value could act on."""
    [found] = errors(given(model=solo(), async_chunk=True))
    assert found.code == "PL033"
    assert found.message == "the one stage of `toy` does not give its output in chunks"


def test_chunks_that_no_stage_can_make_are_refused_when_asked_for() -> None:
    """By default they are just not used."""
    model = pipeline(stage(0, "a"), stage(1, "b", produces_chunks=True))
    assert not planned(given(model=model)).async_chunk
    [found] = errors(given(model=model, async_chunk=True))
    assert found.message == "no stage of `toy` can hand over chunks"


@pytest.mark.parametrize(
    "said",
    [
        {"a": outgoing(to_stage_1="small")},
        {"b": incoming(from_stage_0="small")},
        {"a": outgoing(to_stage_1="small"), "b": incoming(from_stage_0="small")},
        {"a": outgoing(to_stage_1="small"), "b": incoming(from_stage_0="twin")},
    ],
)
def test_a_connector_is_named_at_either_end_or_at_both(said: dict[str, Said]) -> None:
    """Two names agree when they mean the same connector with the same options."""
    assert sizes(given(said, small=SMALL, twin=SMALL)) == [2**18, 8 * 1024 * 1024]


def test_ends_that_disagree_are_refused() -> None:
    """Different options are a disagreement too."""
    said = {"a": outgoing(to_stage_1="small"), "b": incoming(from_stage_0="big")}
    [found] = errors(given(said, small=SMALL, big=BIG))
    assert found.message == "edge 0 -> 1 names `small` at one end and `big` at the other"
    assert [note.message for note in found.notes] == ["`small` is named here"]


@pytest.mark.parametrize(
    ("said", "message", "remedy"),
    [
        (
            {"a": outgoing(to_stage_2="small")},
            "`to_stage_2` of `output_connectors`",
            "allowed here: `to_stage_1`",
        ),
        (
            {"a": outgoing(to_stage_01="small")},
            "`to_stage_01` of `output_connectors`",
            "allowed here: `to_stage_1`",
        ),
        (
            {"a": incoming(from_stage_1="small")},
            "`from_stage_1` of `input_connectors`",
            "there is nothing that could be written here; leave it out",
        ),
    ],
)
def test_what_is_no_edge_is_refused(said: dict[str, Said], message: str, remedy: str) -> None:
    """The help lists the edges of that stage."""
    [found] = errors(given(said, small=SMALL))
    assert found.message == f"{message} is no edge of `a`"
    assert (found.help or "").endswith(remedy)


def test_a_connector_that_is_not_declared_is_refused() -> None:
    """The nearest declared name is offered."""
    [found] = errors(given({"a": outgoing(to_stage_1="smal")}, small=SMALL))
    assert found.message == "connector `smal` is not declared"
    assert (found.help or "").startswith("did you mean `small`?")


def test_a_connector_that_carries_nothing_is_a_warning() -> None:
    """The plan is made all the same."""
    result = attempt(given(None, small=SMALL))
    assert result.plan is not None
    [found] = result.diagnostics
    assert (found.code, found.is_error) == ("PL034", False)
    assert found.help == (
        "name it under `edges`, or in `output_connectors` or `input_connectors` of a stage"
    )
