"""Whatever a file or an argument says, there are settings or findings: no exception, no hang."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagemesh.config.check import hints
from stagemesh.config.document import Findings, Source, read_yaml
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import Loaded, load
from stagemesh.config.opened import MAX_BYTES
from stagemesh.config.schema import PLATFORMS, DeployFile, StageEntry
from stagemesh.config.validate import check_files
from stagemesh.plan.diagnostics import diagnostics_json, diagnostics_text
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer
from tests.config.deploying import CATALOG, Show
from tests.examples import fewer

CORPUS: Final = Path(__file__).parent / "corpus"
_fuzzed: Final = settings(
    fewer(2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

DEPLOY: Final[Mapping[str, Any]] = {
    "pipeline": "show",
    "async_chunk": True,
    "session_mode": "turn",
    "duplex_session": {"max_sessions": 2, "replica_groups": [{0: 0, 1: 0}]},
    "connectors": {"pipe": {"name": "PipeConnector", "extra": {"slots": 2}}},
    "edges": [{"from": 0, "to": "talker", "connector": "pipe", "max_inflight": 2}],
    "dtype": "bfloat16",
    "data_parallel_size": 1,
    "stages": [
        {
            "stage_id": 0,
            "devices": "0,1",
            "env": {"A": "b"},
            "default_sampling_params": {"temperature": 0.5, "stop_token_ids": [1]},
            "engine_extras": {"tuning": {"level": 1}},
            "tensor_parallel_size": 2,
            "async_chunk": True,
        },
        {"stage_id": 3, "ulysses_degree": 2, "enable_expert_parallel": False},
    ],
    "platforms": {"cpu": {"model_runner": "v1", "stages": [{"stage_id": 1, "max_num_seqs": 2}]}},
}
STRATEGY: Final[Mapping[str, Any]] = {
    "strategies": {
        "thinker": [{"axis": "tp", "size": 2, "name": "x"}],
        "talker": [{"axis": "stage_replica", "size": 2, "routing": "round_robin"}],
        "painter": [{"axis": "sp_ulysses", "size": 2}, {"axis": "vae_pp", "size": 2}],
    }
}
WORDS: Final = st.sampled_from(
    [*hints(DeployFile), *hints(StageEntry), *PLATFORMS, "thinker", "strategies", "axis", "size"]
)
SCALARS: Final = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.integers()
    | st.floats()
    | WORDS
    | st.text(max_size=6)
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.integers(0, 3), inner, max_size=4)
    ),
    max_leaves=12,
)
PIECES: Final = st.lists(
    st.sampled_from(
        [
            *("\n", "\n  ", "\n- ", ": ", " ", "- ", "? ", ", ", "{", "}", "[", "]", "&a ", "*a"),
            *(
                "!",
                "!!int ",
                "!!map ",
                "<<: ",
                "|\n ",
                ">\n ",
                '"',
                "'",
                "#",
                "%",
                "---\n",
                "...\n",
            ),
            *("~", "no", "1", "0x1", "1:1", ".inf", "1e9", "\t", "\\", "\0", "\ufeff", "é"),
            *("stages", "stage_id", "platforms", "cpu", "edges", "from", "to", "dtype", "env"),
            *("base_config", "random.yaml", "strategies", "thinker", "axis", "tp", "size"),
        ]
    ),
    max_size=40,
).map("".join)


@st.composite
def mutated(draw: st.DrawFn, valid: object) -> object:
    """Change some places of a value: another value there, another key, nothing, or twice."""
    result = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 4))):
        place = result
        while isinstance(place, dict | list) and place:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys))
            inner = place[key]
            if isinstance(inner, dict | list) and inner and draw(st.booleans()):
                place = inner
                continue
            change = draw(st.sampled_from(["value", "key", "drop", "nest"]))
            if change == "value":
                place[key] = draw(VALUES)
            elif change == "key" and isinstance(place, dict):
                place[draw(WORDS)] = place.pop(key)
            elif change == "drop":
                del place[key]
            else:
                place[key] = [inner, inner]
            break
    return result


@st.composite
def torn(draw: st.DrawFn, valid: object) -> str:
    """Cut and repeat pieces of a file's text."""
    text = yaml.safe_dump(valid, sort_keys=False)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + draw(PIECES | st.just(text[start:end] * 2)) + text[end:]
    return text


def checked(loaded: Loaded) -> None:
    """Hold what was loaded to what is promised of it."""
    assert (loaded.settings is None) == any(found.is_error for found in loaded.diagnostics)
    presentable(loaded.diagnostics, loaded)


def presentable(diagnostics: tuple[Diagnostic, ...], loaded: Loaded) -> None:
    """Every finding stands on one short line at a place, and can be written anywhere."""
    for found in diagnostics:
        assert found.origin is not None
        assert re.fullmatch(r"[^\n]{1,120}", found.message)
    diagnostics_text(diagnostics, loaded.documents).encode()
    diagnostics_json(diagnostics).encode()
    assert len(set(diagnostics)) == len(diagnostics)


def everywhere(show: Show, text: str | bytes) -> None:
    """Give a text as a deploy file, as a strategy and as overrides, and check it as a file."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    (show.folder / "random.yaml").write_bytes(content)
    inputs = PlanInputs(
        model="model",
        deploy_config="random.yaml",
        strategy_config="random.yaml",
        stage_overrides=content.decode("utf-8", "replace"),
    )
    for platform in (None, "cpu"):
        checked(load(inputs, CATALOG, platform))
    (file,) = check_files(["random.yaml"], "show", CATALOG).files
    assert all(found.message for found in file.diagnostics)


@_fuzzed
@given(PIECES | st.text(max_size=80) | st.binary(max_size=80))
def test_no_text_makes_it_raise(show: Show, text: str | bytes) -> None:
    """Pieces of YAML in any order, any text, any bytes."""
    everywhere(show, text)


@_fuzzed
@given(torn(DEPLOY) | torn(STRATEGY))
def test_no_torn_file_makes_it_raise(show: Show, text: str) -> None:
    """Files that nearly are what they should be."""
    everywhere(show, text)


@_fuzzed
@given(mutated(DEPLOY), mutated(STRATEGY), mutated({"0": DEPLOY["stages"][0]}))
def test_no_changed_value_makes_it_raise(
    show: Show, deploy: object, strategy: object, overrides: object
) -> None:
    """As YAML, as JSON and from Python."""
    show.write(
        {
            "deploy.yaml": yaml.safe_dump(deploy, sort_keys=False),
            "strategy.json": json.dumps(strategy),
        }
    )
    inputs = PlanInputs(
        model="model",
        deploy_config="deploy.yaml",
        strategy_config="strategy.json",
        stage_overrides=json.dumps(overrides),
    )
    checked(load(inputs, CATALOG, "cpu"))
    checked(show.load(deploy, strategy_config=strategy, stage_overrides=overrides))  # type: ignore[arg-type]


@_fuzzed
@given(VALUES)
def test_no_json_makes_it_raise(show: Show, value: object) -> None:
    """In each place that takes JSON."""
    everywhere(show, json.dumps(value))


def test_what_the_changes_begin_with_is_well(show: Show) -> None:
    """So that a change, and not the beginning, is what is found."""
    assert show.load(DEPLOY, platform="cpu").diagnostics == ()
    assert show.load({}, strategy_config=STRATEGY).diagnostics == ()


@pytest.mark.no_cover
@pytest.mark.parametrize("file", sorted(CORPUS.iterdir()), ids=lambda file: file.name)
def test_no_file_of_the_corpus_makes_it_raise(show: Show, file: Path) -> None:
    """What went wrong somewhere, and what could."""
    everywhere(show, file.read_bytes())
    inputs = PlanInputs(model="model", deploy_config=file)
    checked(load(inputs, CATALOG, "cpu"))


def test_a_large_file_of_small_values_takes_little(tmp_path: Path) -> None:
    """It is refused before anything is made of it."""
    (tmp_path / "x.yaml").write_text("[" + "[]," * (MAX_BYTES // 3 - 1) + "]", encoding="utf-8")
    findings: Findings = []
    tracemalloc.start()
    try:
        source = Source(name="x.yaml", layer=Layer.DEPLOY)
        assert read_yaml(tmp_path / "x.yaml", source, findings) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [found.code for found in findings] == ["CF005"]
    assert peak < 16 * MAX_BYTES
