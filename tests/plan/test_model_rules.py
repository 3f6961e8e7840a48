"""Rules of a model over the whole effective configuration, told with the places of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import Made, make
from stagemesh.spec.model import ModelFinding, ModelStage, ModelView
from tests.plan.making import catalog, pipeline, stage
from tests.plan.saving import HOST

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """`additional_config` of `a`."""

    pitch: float = 1.0
    """Any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Options of the edges that leave `a`."""

    frames: int = 25
    """Frames of a chunk."""


MODEL = pipeline(
    stage(0, "a", options=Voice, edge_options=Codec, produces_chunks=True),
    stage(1, "b", final_output=True, final_output_type="text"),
)
DEPLOY: Json = {
    "pipeline": "toy",
    "async_chunk": True,
    "connectors": {"shm": {"name": "SharedMemoryConnector", "extra": {"frames": 15}}},
    "stages": [
        {
            "stage_id": 0,
            "max_num_seqs": 3,
            "enforce_eager": True,
            "tensor_parallel_size": 2,
            "additional_config": {"pitch": 2.0},
            "output_connectors": {"to_stage_1": "shm"},
        }
    ],
}


def made(
    folder: Path,
    rule: Callable[[ModelView], Iterable[ModelFinding]],
    deploy: Json = DEPLOY,
    **inputs: Any,  # noqa: ANN401  arguments of another function
) -> Made:
    """Plan a model that has this rule."""
    (folder / "config.json").write_text("{}", encoding="utf-8")
    given = PlanInputs(model=str(folder), deploy_config=deploy, **inputs)
    return make(given, HOST, catalog(replace(MODEL, check=rule)))


class Seen:
    """A rule that finds nothing and keeps what it saw."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.views: list[ModelView] = []

    def __call__(self, view: ModelView) -> Iterable[ModelFinding]:
        """Look."""
        self.views.append(view)
        return ()


def test_a_rule_sees_effective_values(tmp_path: Path) -> None:
    """Of every layer, with the defaults of the engine and of the options."""
    seen = Seen()
    assert made(tmp_path, seen, stage_overrides={"a": {"max_num_seqs": 5}}).diagnostics == ()
    [view] = seen.views
    assert (view.async_chunk, view.platform) == (True, "cpu")
    assert view.stages["a"] == ModelStage(
        options=Voice(pitch=2.0),
        edge_options={"b": Codec(frames=15)},
        fields={
            "max_num_seqs": 5,
            "enforce_eager": True,
            "model_runner": "v1",
            "distributed_executor_backend": "mp",
        },
        sizes={"tp": 2},
        ranks={"tp": 2},
    )
    assert view.stages["b"].fields == {
        "max_num_seqs": 8,
        "model_runner": "v1",
        "distributed_executor_backend": "uni",
    }
    assert [view.stages[name].size("tp") for name in "ab"] == [2, 1]


@pytest.mark.parametrize(
    ("devices", "platform"), [("1xH200", "cuda"), ("2xMI300X", "rocm"), (2, "cpu")]
)
def test_a_rule_sees_the_platform(tmp_path: Path, devices: object, platform: str) -> None:
    """Of assumed devices too."""
    seen = Seen()
    deploy = {"pipeline": "toy", "stages": [{"stage_id": 0, "enforce_eager": True}]}
    made(tmp_path, seen, deploy, devices=devices)
    assert [view.platform for view in seen.views] == [platform]


@pytest.mark.parametrize(
    ("stage_name", "field", "path"),
    [
        ("a", "max_num_seqs", "stages[0].max_num_seqs"),
        ("a", "pitch", "stages[0].additional_config.pitch"),
        ("a", "frames", "connectors.shm.extra.frames"),
        ("a", "tp", "stages[0].tensor_parallel_size"),
        ("a", "async_chunk", "async_chunk"),
        ("b", "async_chunk", "async_chunk"),
        ("b", "pitch", "pipeline"),
        ("nobody", "pitch", "pipeline"),
    ],
)
def test_what_a_rule_finds_points_to_the_value(
    tmp_path: Path, stage_name: str, field: str, path: str | None
) -> None:
    """Wherever it was written; to the choice of the model when nobody wrote it."""
    finding = ModelFinding(
        code="TY001", message="no", stage=stage_name, field=field, help="write yes"
    )
    result = made(tmp_path, lambda _view: [finding])
    assert result.plan is None
    [told] = result.diagnostics
    assert (told.code, told.message, told.help) == ("TY001", "no", "write yes")
    assert (None if told.origin is None else told.origin.path) == path


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("dtype", "stages[0].additional_config.pitch"),
        ("max_num_seqs", "stages[0].max_num_seqs"),
    ],
)
def test_what_nobody_wrote_is_told_at_what_asks_for_it(
    tmp_path: Path, field: str, path: str
) -> None:
    """Unless somebody did write the value at fault."""
    finding = ModelFinding(code="TY001", message="no", stage="a", field=field, asked_by="pitch")
    [told] = made(tmp_path, lambda _view: [finding]).diagnostics
    assert told.origin is not None
    assert told.origin.path == path


def test_a_size_that_a_flag_leaves_open_points_to_the_flag(tmp_path: Path) -> None:
    """`ep` takes its size from other axes."""
    deploy = {
        "pipeline": "toy",
        "stages": [{"stage_id": 0, "enable_expert_parallel": True, "data_parallel_size": 2}],
    }
    finding = ModelFinding(code="TY001", message="no", stage="a", field="ep")
    [told] = made(tmp_path, lambda _view: [finding], deploy).diagnostics
    assert told.origin is not None
    assert told.origin.path == "stages[0].enable_expert_parallel"


def test_a_rule_is_not_asked_about_values_that_are_wrong(tmp_path: Path) -> None:
    """Their own finding is enough."""

    def never(_view: ModelView) -> Iterable[ModelFinding]:
        raise AssertionError

    deploy = {
        "pipeline": "toy",
        "stages": [{"stage_id": 0, "additional_config": {"pitch": "high"}}],
    }
    assert [each.code for each in made(tmp_path, never, deploy).diagnostics] == ["CF012"]


def test_a_rule_that_fails_is_no_traceback(tmp_path: Path) -> None:
    """A model is a plug-in."""

    def careless(view: ModelView) -> Iterable[ModelFinding]:
        yield ModelFinding(code="TY001", message=str(view.stages["z"]), stage="a", field="x")

    [told] = made(tmp_path, careless).diagnostics
    assert told.code == "MD027"
    assert told.message == "the rules of `toy` failed on this configuration"
    assert told.help == "`KeyError: 'z'`"
    assert str(told.origin) == "pipeline `toy`"


def test_a_model_without_rules_finds_nothing(tmp_path: Path) -> None:
    """The default."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    given = PlanInputs(model=str(tmp_path), deploy_config=DEPLOY)
    assert make(given, Host(kind="cpu", count=None, memory_bytes=None), catalog(MODEL)).plan
