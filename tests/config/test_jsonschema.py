"""The JSON Schemas are up to date, take the good examples and refuse the bad ones."""

from __future__ import annotations

import dataclasses
import json
import runpy
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from jsonschema import Draft202012Validator

import stagemesh.config.jsonschema
from stagemesh.config.catalog import Catalog
from stagemesh.config.check import Forbidden, Pattern
from stagemesh.config.docs import field_docs
from stagemesh.config.fields import stage_fields
from stagemesh.config.jsonschema import deploy_schema, main, schema_of, strategy_schema
from stagemesh.config.schema import (
    PLATFORMS,
    ConnectorEntry,
    DeployFile,
    EdgeEntry,
    PlatformSection,
    StageEntry,
    StrategyEntry,
    StrategyFile,
)
from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.config.validate import check_files
from stagemesh.spec.bounds import Range
from tests.config.speech import CATALOG, Options

ROOT = Path(__file__).parents[2]


def test_the_committed_schemas_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """They follow from the annotations and from what is installed."""
    assert main(["--check", "--folder", str(ROOT / "schemas")]) == 0
    assert capsys.readouterr().err == ""


def test_a_stale_file_is_told_and_rewritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` writes nothing."""
    folder = tmp_path / "schemas"
    assert main(["--check", "--folder", str(folder)]) == 1
    assert not folder.exists()
    assert main(["--folder", str(folder)]) == 0
    assert main(["--check", "--folder", str(folder)]) == 0
    (folder / "deploy.schema.json").write_text("{}", encoding="utf-8")
    capsys.readouterr()
    assert main(["--check", "--folder", str(folder)]) == 1
    assert capsys.readouterr().err.startswith(f"{folder}/deploy.schema.json is out of date")


def test_the_module_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the message about a stale file says."""
    monkeypatch.setattr(sys, "argv", ["jsonschema", "--folder", str(tmp_path)])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(stagemesh.config.jsonschema.__file__, run_name="__main__")
    assert {file.name for file in tmp_path.iterdir()} == {
        "deploy.schema.json",
        "strategy.schema.json",
    }


def test_every_field_has_a_text_and_a_place_in_the_schema() -> None:
    """A key without a description is no help to anyone."""
    for kind in (
        StageEntry,
        DeployFile,
        PlatformSection,
        EdgeEntry,
        DuplexSession,
        StrategyEntry,
        StrategyFile,
        ConnectorEntry,
        Options,
    ):
        assert set(field_docs(kind)) == set(kind.__annotations__)
    stage = deploy_schema(CATALOG)["$defs"]["stage"]["properties"]
    assert all(schema.get("description") for schema in stage.values())
    assert set(stage) >= set(StageEntry.__annotations__) | set(Options.__annotations__)
    assert "tensor_parallel_size" in stage


def test_a_field_without_a_text_has_none() -> None:
    """Only text that stands right below a field belongs to it."""

    class Bare:
        first: int
        second: int
        """Told."""
        third = 3
        """No field."""

    assert field_docs(Bare) == {"second": "Told."}


@cache
def validator(make: Callable[[Catalog], dict[str, Any]]) -> Draft202012Validator:
    """A validator of a schema that is one itself."""
    schema = make(CATALOG)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def valid(make: Callable[[Catalog], dict[str, Any]], text: str) -> bool:
    """Tell whether a document passes."""
    return bool(validator(make).is_valid(yaml.safe_load(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("strategies: {thinker: [{axis: tp, size: 2}]}", True),
        ("strategies: {thinker: [{axis: dp, size: 2, routing: least-queue, name: x}]}", True),
        ("strategies: {t: [{axis: sp_ulysses, size: 2, mode: strict, l1_owner: engine}]}", True),
        ("strategies: {t: []}", True),
        ("{}", False),
        ("thinker: [{axis: tp, size: 2}]", False),
        ("strategies: {thinker: {axis: tp, size: 2}}", False),
        ("strategies: {thinker: [{axis: tq, size: 2}]}", False),
        ("strategies: {thinker: [{axis: tp}]}", False),
        ("strategies: {thinker: [{axis: tp, size: 0}]}", False),
        ("strategies: {thinker: [{axis: tp, size: '2'}]}", False),
        ("strategies: {thinker: [{axis: tp, size: 2, routing: random}]}", False),
        ("strategies: {thinker: [{axis: dp, size: 2, routing: hash, key: user}]}", True),
        ("strategies: {thinker: [{axis: dp, size: 2, load_bound: 0.5}]}", False),
        ("strategies: {t: [{axis: tp, size: 2, kernel_specs: [{kernel_id: k}]}]}", False),
        ("strategies: {t: [{axis: tp, size: 2, kernel_specs: [{kernel_id: k, target: x}]}]}", True),
        ("strategies: {thinker: [{axis: tp, size: 2, l1_owner: delegated}]}", False),
        ("strategies: {thinker: [{axis: tp, size: 2, routng: x}]}", False),
    ],
)
def test_the_strategy_schema_says_what_the_reader_says(text: str, *, expected: bool) -> None:
    """Editors mark the same entries."""
    assert valid(strategy_schema, text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", True),
        ("async_chunk: ~\nstages: ~\nconnectors: ~", True),
        ("connectors: {a: {name: Pipe, extra: {slots: 1}}}", True),
        ("stages: [{stage_id: 0, devices: '0,1', env: {A: b}, max_num_seqs: ~}]", True),
        ("stages: [{stage_id: 0, tuning: {level: 1}, enable_expert_parallel: true}]", True),
        ("stages: [{stage_id: 0, output_connectors: {to_stage_1: a}, num_replicas: 2}]", True),
        ("base_config: ~\npipeline: ~\nsession_mode: duplex\nactive_stream_window: 0", True),
        ("duplex_session: {max_sessions: 2, idle_ttl_s: ~, replica_groups: [{'0': 1}]}", True),
        ("connectors: {a: {extra: {slots: 1}}}\ncuda_mps: ~\nweight_transfer_config: {a: 1}", True),
        ("edges: [{from: 0, to: talker, connector: a, window_size: -1, max_inflight: ~}]", True),
        ("dtype: auto\ndata_parallel_size: 2\nmodel_runner: v2\ncustom_voice_dir: ~", True),
        ("platforms: {npu: {model_runner: v1, cuda_mps: true, stages: [{stage_id: 1}]}}", True),
        ("platforms: {npu: ~, cuda: {stages: ~}}", True),
        ("stages: [{stage_id: 0, engine_extras: {max_num_seqs: 1}, async_chunk: false}]", True),
        ("stages: [{stage_id: 0, tuning: {note: ~}, env: {A: ~}}]", True),
        ("base_config: 3", False),
        ("session_mode: both", False),
        ("active_stream_window: -1", False),
        ("duplex_session: {max_session: 2}", False),
        ("duplex_session: {max_sessions: 0}", False),
        ("duplex_session: {replica_groups: [{a: 1}]}", False),
        ("edges: {}", False),
        ("edges: [{from: 0}]", False),
        ("edges: [{from: 0, to: 1, windw: 1}]", False),
        ("edges: [{from: 0, to: 1, max_inflight: 0}]", False),
        ("edges: [{from: true, to: 1}]", False),
        ("cuda_mps: 1", False),
        ("dtype: 3", False),
        ("data_parallel_size: 0", False),
        ("tensor_parallel_size: 2", False),
        ("platforms: {npus: {}}", False),
        ("platforms: {npu: {dtype: a}}", False),
        ("platforms: {npu: {stages: [{stage_id: 1, devices: a}]}}", False),
        ("stages: [{stage_id: 0, session_mode: turn}]", False),
        ("stages: [{stage_id: 0, default_pooling_params: {}}]", False),
        ("stages: [{stage_id: 0, final_output: true}]", False),
        ("async_chunk: 3", False),
        ("stage_args: []", False),
        ("stages: [{devices: '0'}]", False),
        ("stages: [{stage_id: '0'}]", False),
        ("stages: [{stage_id: 0, devices: 0}]", False),
        ("stages: [{stage_id: 0, devices: 'a'}]", False),
        ("stages: [{stage_id: 0, max_num_seqs: 0}]", False),
        ("stages: [{stage_id: 0, output_connectors: {stage_1: a}}]", False),
        ("stages: [{stage_id: 0, engine_args: {}}]", False),
        ("stages: [{stage_id: 0, env: {LD_PRELOAD: x.so}}]", False),
        ("stages: [{stage_id: 0, env: {HF_TOKEN: x}}]", False),
    ],
)
def test_the_deploy_schema_says_what_the_reader_says(
    tmp_path: Path, text: str, *, expected: bool
) -> None:
    """Editors mark the same fields as the reader of one file, which looks at its form alone."""
    assert valid(deploy_schema, text) is expected
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    found = check_files([tmp_path / "x.yaml"], catalog=CATALOG).diagnostics
    assert (not found) is expected, found


def test_sections_and_the_root_share_the_schema_of_a_stage() -> None:
    """So the file says every stage field once, and each key of the root has its text."""
    schema = deploy_schema(CATALOG)
    stage = {"$ref": "#/$defs/stage"}
    assert schema["properties"]["stages"]["items"] == stage
    assert schema["$defs"]["section"]["properties"]["stages"]["items"] == stage
    assert set(schema["properties"]["platforms"]["properties"]) == set(PLATFORMS)
    wide = {name for name, field in stage_fields(CATALOG).items() if field.pipeline_wide}
    assert set(schema["properties"]) == set(DeployFile.__annotations__) | wide
    for name, root in schema["properties"].items():
        assert root.get("description"), name
    assert schema["properties"]["dtype"]["$ref"] == "#/$defs/stage/properties/dtype"


class Colour(Enum):
    """A choice."""

    RED = "red"


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (object, {}),
        (Colour, {"enum": ["red"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Annotated[int, Range(maximum=2), "note"], {"type": "integer", "maximum": 2}),
        (Annotated[float, Range(above=0)], {"type": "number", "exclusiveMinimum": 0}),
        (
            Annotated[int, Range(minimum=1, also=-1)],
            {"type": "integer", "anyOf": [{"const": -1}, {"minimum": 1}]},
        ),
        (
            Annotated[str, Pattern(regex="a|b", example="a")],
            {"type": "string", "pattern": "^(a|b)$"},
        ),
    ],
)
def test_each_annotation_has_its_schema(annotation: object, schema: object) -> None:
    """The same annotations as the walker takes."""
    assert json.loads(json.dumps(schema_of(annotation))) == schema


def test_what_one_layer_says_may_be_null_and_incomplete() -> None:
    """Each kind of schema takes `null` in its own way; what takes anything does already."""

    @dataclasses.dataclass
    class Part:
        number: int
        choice: Colour
        anything: object
        either: int | str
        name: Annotated[str, Forbidden(regex="A", reason="", remedy="")]

    assert schema_of(Part, partial=True) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "number": {"type": ["integer", "null"]},
            "choice": {"enum": ["red", None]},
            "anything": {},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
            "name": {
                "anyOf": [
                    {"type": "string", "not": {"anyOf": [{"pattern": "^(A)$"}]}},
                    {"type": "null"},
                ]
            },
        },
    }
