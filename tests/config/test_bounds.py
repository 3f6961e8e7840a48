"""Every number has its bounds, and they hold whichever way the number is given."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin

import pytest

from stagemesh.config.check import hints
from stagemesh.config.fields import StageField, stage_fields
from stagemesh.config.flag_rules import StartFields
from stagemesh.config.flag_table import load_flags
from stagemesh.config.inputs import GivenField, PlanInputs
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.launch import LaunchOptions
from stagemesh.config.schema import DeployFile, EdgeEntry, StageEntry, StrategyEntry
from stagemesh.plan.make import Made
from stagemesh.spec.bounds import Range
from stagemesh.spec.pipeline import ExecutionType
from tests.config.flagged import CATALOG, INSTALLED, made_from, python_made, text_of

UNBOUNDED: Final[Mapping[str, str]] = {
    "lora_scale": "below 0 the effect of an adapter is taken away",
    "warmup_frames": "below 0 says that nothing is warmed up, not even the first group",
    "stage_id": "of a start: which stages there are is the pipeline's affair (CF063)",
    "priority": "only the order of priorities counts",
}
"""Numbers that may be any, each with the reason."""


def numbers(annotation: Any, *, bounded: bool = False) -> Iterator[bool]:  # noqa: ANN401
    """Yield for every number inside an annotation whether it has bounds."""
    origin: Any = get_origin(annotation)
    if annotation in (int, float):
        yield bounded
    elif origin is Annotated:
        inner, *metadata = get_args(annotation)
        yield from numbers(inner, bounded=any(isinstance(each, Range) for each in metadata))
    elif isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        yield from (
            each
            for name, inner in hints(annotation).items()
            if name not in UNBOUNDED
            for each in numbers(inner)
        )
    else:
        yield from (each for inner in get_args(annotation) for each in numbers(inner))


def declared() -> Iterator[tuple[str, Any]]:
    """Yield every field that a file, a flag or a keyword can give, with its annotation."""
    kinds = [DeployFile, StageEntry, EdgeEntry, StrategyEntry, LaunchOptions, StartFields]
    kinds += [*KIND_FIELDS, *(axis.options for axis in CATALOG.axes.values())]
    for engine in CATALOG.engines.values():
        kinds += [engine.options, engine.params]
    kinds += [connector.options for connector in CATALOG.connectors.values()]
    for model in INSTALLED.models:
        for stage in model.pipeline.stages:
            kinds += [stage.options, stage.edge_options]
    for kind in kinds:
        yield from hints(kind).items()


def test_every_number_has_bounds_or_a_reason_for_none() -> None:
    """So that none is forgotten."""
    free = {name for name, annotation in declared() if not all(numbers(annotation))}
    assert free == {"lora_scale", "stage_id"}


# --- every way to give a number -------------------------------------------------------------------


def outside(annotation: Any) -> tuple[float, str] | None:  # noqa: ANN401
    """Return the nearest number that the bounds of a plain number refuse, with what they say."""
    origin: Any = get_origin(annotation)
    if origin in (Union, types.UnionType):
        members = [each for each in get_args(annotation) if each is not type(None)]
        return outside(members[0]) if len(members) == 1 else None
    if origin is not Annotated:
        return None
    kind, *metadata = get_args(annotation)
    bounds = next((each for each in metadata if isinstance(each, Range)), None)
    if bounds is None or kind not in (int, float):
        return None
    step = 1 if kind is int else 0.001
    if bounds.above is not None:
        return kind(bounds.above), str(bounds)
    assert bounds.minimum is not None
    return kind(bounds.minimum) - step, str(bounds)


_MODELS: Final = {ExecutionType.DIFFUSION: "picture", ExecutionType.LLM_AR: "solo"}
_STAGES: Final = {"picture": "dit", "solo": "front"}
_BELOW: Final = {
    name: (field, found)
    for name, field in stage_fields(CATALOG).items()
    if (len(field.annotations) == 1 and (found := outside(field.annotations[0])) is not None)
}
_FLAGS: Final = {flag.field: flag.spellings[0] for flag in load_flags()}


def _model(field: StageField) -> str:
    kinds = field.fits
    if isinstance(field.declared_by, type) and field.declared_by not in KIND_FIELDS:
        kinds = frozenset({ExecutionType.LLM_AR})
    return next(model for kind, model in _MODELS.items() if kind in kinds)


def _refused(made: Made, text: str) -> None:
    assert made.plan is None
    assert [found.code for found in made.diagnostics] == ["CF013"], text_of(made)
    assert f"must be `{text}`" in made.diagnostics[0].message


@pytest.mark.parametrize("name", _BELOW)
def test_a_deploy_file_gives_no_number_below_its_bounds(name: str, tmp_path: Path) -> None:
    """In the entry of a stage."""
    field, (value, text) = _BELOW[name]
    deploy = {"stages": [{"stage_id": 0, name: value}]}
    _refused(made_from(tmp_path, "", model=_model(field), deploy=deploy), text)


@pytest.mark.parametrize("name", _BELOW)
def test_one_stage_takes_no_number_below_its_bounds(name: str, tmp_path: Path) -> None:
    """By `--set`."""
    field, (value, text) = _BELOW[name]
    model = _model(field)
    _refused(made_from(tmp_path, f"--set {_STAGES[model]}.{name}={value}", model=model), text)


@pytest.mark.parametrize("name", [name for name in _BELOW if name in _FLAGS])
def test_a_flag_takes_no_number_below_its_bounds(name: str, tmp_path: Path) -> None:
    """Said of all stages."""
    field, (value, text) = _BELOW[name]
    _refused(made_from(tmp_path, f"{_FLAGS[name]}={value}", model=_model(field)), text)


@pytest.mark.parametrize("name", [name for name in _BELOW if name in _FLAGS])
def test_a_keyword_takes_no_number_below_its_bounds(name: str, tmp_path: Path) -> None:
    """In Python."""
    field, (value, text) = _BELOW[name]
    given = GivenField(name=name, value=value, source=name)
    inputs = PlanInputs(model="", fields=(given,))
    _refused(python_made(tmp_path, inputs, _model(field)), text)


@pytest.mark.parametrize(
    ("line", "deploy", "code"),
    [
        ("--boundary-ratio 1.5", {}, "CF013"),
        ("--flow-shift -5", {}, "CF013"),
        ("--max-model-len 0", {}, "CF013"),
        ("--omni-master-port 65536", {}, "CF013"),
        ("", {"edges": [{"from": 0, "to": 1, "window_size": 0}]}, "CF013"),
        ("", {"edges": [{"from": 0, "to": 1, "window_size": -2}]}, "CF013"),
        ("", {"edges": [{"from": 0, "to": 1, "max_inflight": 0}]}, "CF013"),
        ("", {"duplex_session": {"max_sessions": 0}}, "CF013"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(
    line: str, deploy: Mapping[str, object], code: str, tmp_path: Path
) -> None:
    """Those of edges, of sessions and of the start, and those above their bounds."""
    made = made_from(tmp_path, line, model="ar_dit", deploy=deploy)
    assert [found.code for found in made.diagnostics] == [code], text_of(made)
