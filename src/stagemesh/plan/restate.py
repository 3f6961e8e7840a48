"""A plan's decisions, said again as the files that lead to them.

So a saved plan is judged by the very rules that made it: no second set of checks can differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.config.catalog import Catalog
from stagemesh.config.inputs import PlanInputs, python_fields
from stagemesh.config.launch import given_options
from stagemesh.config.plain import plain, plain_fields
from stagemesh.plan.engine import NO_ENGINE
from stagemesh.plan.sessions import DuplexPlan
from stagemesh.plan.stage import binding_of
from stagemesh.plan.values import AxisPlan, BindingPlan, EdgePlan, Plan, StagePlan
from stagemesh.spec.axis import Axis


def restated(plan: Plan, catalog: Catalog) -> PlanInputs:
    """Return inputs that say everything the plan says, but for devices and their places."""
    return PlanInputs(
        model=plan.checkpoint.path,
        deploy_config={
            "pipeline": plan.pipeline,
            "async_chunk": plan.async_chunk,
            **_wide(plan),
            "connectors": {_name(edge): _connector(edge, catalog) for edge in plan.edges},
            "edges": [_edge(edge) for edge in plan.edges],
            "stages": [_stage(stage, plan, catalog) for stage in plan.stages],
        },
        strategy_config={
            "strategies": {
                stage.name: [_axis(axis, stage, catalog.axes.get(axis.axis)) for axis in stage.axes]
                for stage in plan.stages
            }
        },
        fields=python_fields(given_options(plan.launch)),
    )


def _wide(plan: Plan) -> dict[str, object]:
    """What is said about the pipeline as a whole."""
    said: dict[str, object] = {"session_mode": plan.session.mode}
    if plan.active_stream_window:
        said["active_stream_window"] = plan.active_stream_window
    if plan.cuda_mps:
        said["cuda_mps"] = True
    if plan.session.duplex is not None:
        said["duplex_session"] = duplex_fields(plan.session.duplex)
    if plan.weight_transfer is not None:
        transfer = plan.weight_transfer
        said["weight_transfer_config"] = {**transfer.options, "backend": transfer.backend}
    return said


def duplex_fields(duplex: DuplexPlan) -> dict[str, object]:
    """Return the section of a deploy file that leads to these sessions."""
    said = plain_fields(duplex)
    del said["frontends"], said["can_resume"]  # which follow from the start and the model
    groups = [dict(enumerate(group.replicas)) for group in duplex.groups]
    del said["groups"]
    return {**said, "replica_groups": groups} if groups else said


def _stage(stage: StagePlan, plan: Plan, catalog: Catalog) -> dict[str, object]:
    said: dict[str, object] = {
        **stage.engine_args,
        **stage.stage_args,
        "stage_id": stage.stage_id,
        "env": stage.env,
        "default_sampling_params": _sampling(stage, plan, catalog),
        "additional_config": stage.model_args,
    }
    if not stage.async_chunk:
        said["async_chunk"] = False
    return said if stage.engine == NO_ENGINE else {**said, "engine": stage.engine}


def _sampling(stage: StagePlan, plan: Plan, catalog: Catalog) -> Mapping[str, object]:
    """Leave out what the pipeline adds itself."""
    pipelines = (model.pipeline for model in catalog.models)
    pipeline = next((each for each in pipelines if each.model_type == plan.pipeline), None)
    declared = None if pipeline is None else pipeline.stage(stage.name)
    forced = {} if declared is None else declared.sampling_constraints
    return {
        name: value
        for name, value in stage.sampling.items()
        if name not in forced or plain(forced[name]) != value
    }


def _name(edge: EdgePlan) -> str:
    return f"edge {edge.source} -> {edge.target}"


def _edge(edge: EdgePlan) -> dict[str, object]:
    limits = {"window_size": edge.window_size, "max_inflight": edge.max_inflight}
    return {"from": edge.source, "to": edge.target, "connector": _name(edge), **limits}


def _connector(edge: EdgePlan, catalog: Catalog) -> dict[str, object]:
    """Name a connector as deploy files do."""
    names = (name for name, spec in catalog.connectors.items() if spec.name == edge.connector)
    return {"name": next(names, edge.connector), "extra": {**edge.options, **edge.model_options}}


def _axis(axis: AxisPlan, stage: StagePlan, declared: Axis | None) -> dict[str, object]:
    entry = {**axis.options, "axis": axis.axis, "size": axis.size, "name": axis.label}
    if declared is not None:
        if declared.policies:
            entry["routing"] = axis.routing.args.get("policy")
        entry.update(_bindings(stage, declared))
    return entry


def _bindings(stage: StagePlan, axis: Axis) -> dict[str, object]:
    """Hooks and kernels that the axis does not bind by itself."""
    own = {binding_of(spec, axis.name) for spec in axis.bindings}
    given = [each for each in stage.bindings if each.axis == axis.name and each not in own]
    hooks = [_hook(each) for each in given if each.kind == "hook"]
    kernels = [_kernel(each) for each in given if each.kind != "hook"]
    keys = {"layer_hook_specs": hooks, "kernel_specs": kernels}
    return {key: value for key, value in keys.items() if value}


def _hook(binding: BindingPlan) -> dict[str, object]:
    return {
        "hook_id": binding.name,
        "target": binding.target,
        "category": binding.category,
        "priority": binding.priority,
    }


def _kernel(binding: BindingPlan) -> dict[str, object]:
    said = {key: value for key, value in _hook(binding).items() if key != "hook_id"}
    return {
        **said,
        "kernel_id": binding.name,
        "group_axis": binding.group_axis,
        "requires_collective": binding.requires_collective,
    }
