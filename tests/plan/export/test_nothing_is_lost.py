"""No value is lost on the way into another form: it is in the file, or the file names it.

What comes out is planned again: it gives the same plan, or the list of what cannot be expressed has
the path of the value.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.inputs import PlanInputs, python_fields
from stagemesh.plan.make import make
from stagemesh.plan.values import Plan
from tests.plan.export.feeding_back import HOST, decisions, exported, fed_back
from tests.plan.export.field_cases import CASES, MODEL, MODELS, Given, catalog


def inputs(folder: Path, given: Given) -> PlanInputs:
    """A checkpoint of the model, and what is said about it."""
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return PlanInputs(
        model=str(folder),
        deploy_config={"pipeline": "toy", **given.deploy},
        strategy_config={"strategies": given.strategy},
        fields=python_fields(given.start),
        devices="32xH200",
    )


def planned(asked: PlanInputs, known: Catalog) -> Plan:
    """Plan what must be well."""
    made = make(asked, HOST, known)
    assert made.plan is not None, made.diagnostics
    return made.plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of all cases."""
    return tmp_path_factory.mktemp("checkpoint")


@functools.cache
def usual(folder: Path, stages: int) -> Plan:
    """The plan of a model to which nobody says anything."""
    model = next(each for each in (MODEL, *MODELS.values()) if len(each.stages) == stages)
    return decisions(planned(inputs(folder, Given(path="")), catalog(model)))


@pytest.mark.parametrize("given", CASES, ids=lambda given: given.path)
def test_a_value_is_in_the_file_or_named(given: Given, folder: Path) -> None:
    """It changes the plan, and so would its loss."""
    asked, known = inputs(folder, given), catalog(given.model)
    plan = planned(asked, known)
    assert decisions(plan) != usual(folder, len(given.model.stages))
    for form in ("yaml", "vllm-omni"):
        said = exported(plan, known, form)
        if not any(f"`{given.path}: " in line for line in said.unsaid):
            again = fed_back(said, asked, known)
            assert again.diagnostics == ()
            assert again.plan is not None
            assert decisions(again.plan) == decisions(plan)
