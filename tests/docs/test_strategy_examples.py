"""Every strategy in `examples/` plans as it stands, for the model and the devices that it names.

The model is one of the checkpoints in `tests/fixtures`; for the demo's, which is assembled, a
pipeline of the same stages stands in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import Made, make
from stagemesh.spec.registry import AXES
from tests.architecture.source import ROOT
from tests.config.cases import CATALOG

FOLDER: Final = ROOT / "examples" / "strategies"
FILES: Final = {str(file.relative_to(FOLDER)): file for file in sorted(FOLDER.rglob("*.yaml"))}
HOST: Final = Host(kind="cpu", count=None, memory_bytes=None)
FIXTURES: Final = ROOT / "tests" / "fixtures"
STAND_IN: Final = "speech"
"""A pipeline of these tests with the stages of `voice_chat`, whose checkpoint is assembled."""


def header(file: Path) -> Mapping[str, str]:
    """Return what the comments at the top name: `model` and `devices`."""
    named = re.findall(
        r"^# (model|devices): (\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [key for key, _ in named] == ["model", "devices"]
    return dict(named)


def stacks(file: Path) -> Mapping[str, list[Mapping[str, object]]]:
    """Return the stacks of axes by stage."""
    loaded: Mapping[str, list[Mapping[str, object]]] = yaml.safe_load(
        file.read_text(encoding="utf-8")
    )["strategies"]
    return loaded


def planned(file: Path, folder: Path) -> Made:
    """Plan the model of a file under it, as a user does."""
    said = header(file)
    checkpoint = next((each for each in FIXTURES.rglob(said["model"]) if each.is_dir()), None)
    if checkpoint is None:
        (folder / "config.json").write_text("{}", encoding="utf-8")
        inputs = PlanInputs(
            model=str(folder),
            strategy_config=file,
            deploy_config={"pipeline": STAND_IN},
            devices=said["devices"],
        )
        return make(inputs, HOST, CATALOG)
    inputs = PlanInputs(model=str(checkpoint), strategy_config=file, devices=said["devices"])
    return make(inputs, HOST)


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_an_example_plans_without_a_word(file: Path, tmp_path: Path) -> None:
    """Neither an error nor a warning, and each axis is there in its size."""
    made = planned(file, tmp_path)
    assert made.plan is not None, made.diagnostics
    assert made.diagnostics == ()
    stages = {stage.name: stage for stage in made.plan.stages}
    for name, stack in stacks(file).items():
        sizes = {axis.axis: axis.size for axis in stages[name].axes}
        assert sizes == {entry["axis"]: entry["size"] for entry in stack}
        assert min(sizes.values()) > 1


def test_each_axis_has_an_example_of_its_name() -> None:
    """Which stacks that axis."""
    for name in AXES.modules():
        (stack,) = stacks(FILES[f"{name}.yaml"]).values()
        assert name in {entry["axis"] for entry in stack}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_an_example_begins_with_what_it_is_for(file: Path) -> None:
    """A sentence, before the model and the devices."""
    first = file.read_text(encoding="utf-8").splitlines()[0]
    assert re.fullmatch(r"# [A-Z].*[.;,a-z]", first)
