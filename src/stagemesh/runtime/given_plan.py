"""The plan of what a program gives: a model to plan, or a plan as it is."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from stagemesh.config.host import read_host
from stagemesh.config.inputs import GivenField, PlanInputs, python_fields
from stagemesh.errors import DiagnosticError
from stagemesh.plan.diffusion_parallel import SOURCE as PARALLEL_CONFIG
from stagemesh.plan.diffusion_parallel import DiffusionParallelConfig
from stagemesh.plan.make import make
from stagemesh.plan.values import Plan
from stagemesh.runtime.transport.token import idle_permission
from stagemesh.spec.diagnostic import Diagnostic

# Warnings of a plan are of whoever gave it, and are heard where they always were.
_log: Final = logging.getLogger("stagemesh.runtime.omni")


def given_fields(given: Mapping[str, object]) -> tuple[GivenField, ...]:
    """Return what was given by keyword; fields of a parallel configuration come first.

    Without one there is nothing to lay over the stages, so `None` is as good as absent.
    """
    others = {name: value for name, value in given.items() if name != PARALLEL_CONFIG}
    parallel = given.get(PARALLEL_CONFIG)
    if parallel is None:
        return python_fields(others)
    if not isinstance(parallel, DiffusionParallelConfig):
        return python_fields(given)
    return (*parallel.as_given(), *python_fields(others))


def plan_of(model: str | Plan, inputs: PlanInputs) -> Plan:
    """Return the plan; raises `DiagnosticError` with all mistakes, and logs the warnings."""
    if isinstance(model, Plan):
        if inputs != PlanInputs(model=inputs.model):
            raise TypeError("a plan is complete: it takes no further configuration")
        return model
    made = make(inputs, read_host())
    if made.plan is None:
        raise DiagnosticError(made.diagnostics)
    for diagnostic in (*made.diagnostics, *_idle_permission(made.plan, inputs)):
        _log.warning("%s", diagnostic)
    return made.plan


def _idle_permission(plan: Plan, inputs: PlanInputs) -> tuple[Diagnostic, ...]:
    """What a program runs without a command lets nobody in, as a command that runs it does not."""
    given = (each.source for each in inputs.fields if each.name == "insecure_no_token")
    source = next(given, None)
    return () if source is None else idle_permission(plan.launch, source=source)


def startup_s(plan: Plan) -> float:
    """How long its stages may take to start: all of them, and each, as they begin together."""
    each_s = plan.launch.stage_init_timeout
    all_s = plan.launch.init_timeout
    return all_s if each_s is None else min(all_s, each_s)
