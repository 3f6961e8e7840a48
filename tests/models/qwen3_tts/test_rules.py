"""What excludes what in Qwen3-TTS, and what its one-stage form needs: told with the place of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.models.shipping import made, told

TWO: Final = "qwen3_tts.yaml"
ONE: Final = "qwen3_tts_fused_single_gpu.yaml"


def overlay(base: str, **changes: object) -> dict[str, object]:
    """A deploy file that lies on one of those that ship."""
    return {"base_config": base, **changes}


def on_edge(**extra: object) -> dict[str, object]:
    """Options of the edge, on top of the default profile."""
    return overlay(TWO, connectors={"connector_of_shared_memory": {"extra": extra}})


def talker(base: str, **fields: object) -> dict[str, object]:
    """Fields of the talker, on top of a profile."""
    return overlay(base, stages=[{"stage_id": 0, **fields}])


STREAM: Final = {"talker_stream_decode": True}
FIRST: Final = {"talker_stream_first_audio": True}

TWO_STAGES: Final[dict[str, tuple[Mapping[str, object], list[str]]]] = {
    "decoding in the talker": (
        talker(TWO, additional_config=STREAM),
        [
            (
                "MD028: `talker_stream_decode` is for one stage: `code2wav` takes codec frames,"
                " and no sound"
            )
        ],
    ),
    "both ways of the first frame": (
        talker(TWO, additional_config=FIRST),
        ["MD028: `talker_stream_first_audio` and `talker_first_audio` exclude each other"],
    ),
    "the other way of the first frame": (
        {**on_edge(talker_first_audio=False), **talker(TWO, additional_config=FIRST)},
        ["MD028: `talker_stream_first_audio` is for one stage, whose talker decodes frames itself"],
    ),
    "a prefix cache": (
        overlay(TWO, enable_prefix_caching=True),
        ["MD029: `talker_first_audio` needs `enable_prefix_caching: false` for `talker`"],
    ),
    "whole payloads": (
        overlay(TWO, async_chunk=False),
        ["MD029: `talker_first_audio` needs `async_chunk: true` for `talker`"],
    ),
    "two ranks": (
        talker(TWO, tensor_parallel_size=2, devices="0,1"),
        ["MD029: `talker_first_audio` needs one rank instead of `tp` = `2` for `talker`"],
    ),
    "another process": (
        talker(TWO, distributed_executor_backend="mp"),
        ["MD029: `talker_first_audio` needs `distributed_executor_backend: uni` for `talker`"],
    ),
    "two kinds of predictor": (
        on_edge(code_predictor_kv_cache=True, code_predictor_prefix_graphs=True),
        ["MD028: `code_predictor_prefix_graphs` and `code_predictor_kv_cache` exclude each other"],
    ),
    "a graph that is never used": (
        on_edge(decode_cudagraph_batch_sizes=[1, 4], decode_batch_max_size=2),
        ["MD028: a graph for `4` requests is never used: `decode_batch_max_size` is `2`"],
    ),
    "more requests than graphs": (on_edge(decode_batch_max_size=2), []),
    "all of it with the older runner": (
        overlay(TWO, model_runner="v1", enable_prefix_caching=True, async_chunk=False),
        [],
    ),
}
"""What is laid on the default profile, and what is said about it."""

ONE_STAGE: Final[dict[str, tuple[Mapping[str, object], list[str]]]] = {
    "nobody decodes": (
        talker(ONE, additional_config={"talker_stream_decode": False}),
        ["MD028: `talker_stream_decode` cannot be `false`: no other stage decodes"],
    ),
    "the older runner": (
        overlay(ONE, model_runner="v1"),
        ["MD029: a talker that decodes frames itself needs `model_runner: v2`"],
    ),
    "whole payloads": (
        overlay(ONE, async_chunk=False),
        ["MD029: a talker that decodes frames itself needs `async_chunk: true`"],
    ),
    "two ranks": (
        talker(ONE, pipeline_parallel_size=2, devices="0,1", distributed_executor_backend="mp"),
        ["MD029: a talker that decodes frames itself needs one rank instead of `pp` = `2`"],
    ),
    "another process": (
        talker(ONE, distributed_executor_backend="mp"),
        ["MD029: a talker that decodes frames itself needs `distributed_executor_backend: uni`"],
    ),
    "a prefix cache": (
        overlay(ONE, enable_prefix_caching=True),
        ["MD029: a talker that decodes frames itself needs `enable_prefix_caching: false`"],
    ),
    "two whole groups": (talker(ONE, num_replicas=2, devices="0,1"), []),
    "a queue for the first frame": (talker(ONE, additional_config=FIRST), []),
}
"""What is laid on the profile of one stage, and what is said about it."""


@pytest.mark.parametrize("case", TWO_STAGES)
def test_two_stages_refuse_what_belongs_to_one(case: str) -> None:
    """Each mistake once, and all of them."""
    deploy, messages = TWO_STAGES[case]
    assert told(made("qwen3_tts", deploy, "2xH200")) == messages


@pytest.mark.parametrize("case", ONE_STAGE)
def test_one_stage_says_what_it_lacks(case: str) -> None:
    """Each mistake once, and all of them."""
    deploy, messages = ONE_STAGE[case]
    assert told(made("qwen3_tts", deploy, "2xH200")) == messages


@pytest.mark.parametrize("devices", ["1xMI300X", "1xMTTS4000"])
def test_one_stage_is_for_cuda(devices: str) -> None:
    """Its kernels are."""
    [message] = told(made("qwen3_tts", overlay(ONE), devices))
    assert message.startswith("MD029: a talker that decodes frames itself needs CUDA devices")


def test_a_finding_stands_at_the_value_at_fault(tmp_path: Path) -> None:
    """In the file that has it, however low it lies."""
    text = yaml.safe_dump(overlay(TWO, enable_prefix_caching=True), sort_keys=False)
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    [found] = made("qwen3_tts", file).diagnostics
    assert found.origin is not None
    assert (found.origin.source, found.origin.line) == (str(file), 2)
    assert found.help == "or set `talker_first_audio: false` in `extra` of the connector"


def test_what_one_stage_lacks_and_nobody_wrote_stands_at_its_choice(tmp_path: Path) -> None:
    """The pipeline is what asks for it."""
    file = tmp_path / "fused.yaml"
    file.write_text("# mine\npipeline: qwen3_tts_fused\n", encoding="utf-8")
    found = made("qwen3_tts", file, "2xH100").diagnostics
    assert {each.code for each in found} == {"MD029"}
    for each in found:
        assert each.origin is not None
        assert (each.origin.source, each.origin.line, each.origin.column) == (str(file), 2, 11)


def test_options_of_one_stage_are_unknown_to_two() -> None:
    """They are no part of its options."""
    deploy: dict[str, Any] = talker(TWO, additional_config={"code_predictor_fused": True})
    messages = ["PL024: stage `talker` knows no parameter `code_predictor_fused`"]
    assert told(made("qwen3_tts", deploy)) == messages
