"""`parallelize`: a pipeline or a network of `diffusers`, as it is, on the ranks of `torchrun`.

It goes through the planner as any other start does: the configuration of the live object is planned
under the strategy, and what the plan says is bound. What it says and nothing here carries out is
refused before anything is bound.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import read_host
from stagemesh.config.inputs import ConfigInput, PlanInputs
from stagemesh.errors import DiagnosticError, ParallelError
from stagemesh.parallel.mesh.backends import CONNECT, choose
from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.mesh.device_mesh import DeviceMesh
from stagemesh.parallel.mesh.ranks import GlobalRank, Group, GroupRank, layout_of
from stagemesh.parallel.mesh.stores import PrefixStore, Store, TCPStore
from stagemesh.parallel.vae.bind import bind_vae
from stagemesh.parallel.walker.groups import Groups
from stagemesh.parallel.walker.walk import bind_network
from stagemesh.plan.make import make
from stagemesh.plan.values import AxisPlan, BindingPlan, Plan, StagePlan
from stagemesh.spec.frozen import frozen
from stagemesh.spec.hooks import Binding, HookCategory, KernelSpec, LayerHookSpec
from stagemesh.spec.model_plan import ModelPlan
from stagemesh.spec.reference import resolve
from stagemesh.spec.vae_plan import VaePlan

WITHIN_S: Final = 600.0
"""How long ranks wait for each other."""
_INDEX: Final = "model_index.json"
_NETWORK: Final = "transformer"
"""What a network by itself is called."""
_CARRIED_OUT: Final = frozenset({"mode", "sequence_parallel_size"})
"""Options of axes that may have another value than their default."""


@frozen
class Parallelized:
    """What was bound."""

    plan: Plan
    """The plan that is carried out."""
    mesh: DeviceMesh
    """The ranks."""

    def close(self) -> None:
        """Leave the others; what was bound cannot run any more."""
        self.mesh.close()


@frozen
class _Start:
    """Where a process stands among those that `torchrun` has started."""

    rank: GlobalRank
    """Its rank."""
    world_size: int
    """How many there are."""
    one_host: bool
    """Whether all of them are here."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> _Start:
        world_size = int(environ.get("WORLD_SIZE", "1"))
        return cls(
            rank=GlobalRank(int(environ.get("RANK", "0"))),
            world_size=world_size,
            one_host=int(environ.get("LOCAL_WORLD_SIZE", str(world_size))) == world_size,
        )


def parallelize(
    model: Any,  # noqa: ANN401  pipelines have no class in common
    strategy_config: ConfigInput,
    *,
    within_s: float = WITHIN_S,
) -> Parallelized:
    """Let the ranks that `torchrun` has started run a pipeline or network of `diffusers` together.

    `strategy_config` is a strategy file or a mapping, of the one stage `dit`. All ranks call it
    alike, and then the model; all have its result. What torch draws is the same on all of them from
    now on, so that all begin with one noise. Raises `DiagnosticError` where the planner refuses the
    strategy, `ParallelError` where the ranks are not those of the plan or it says what is not
    carried out here, and `MeshError` where ranks do not come together.
    """
    start, catalog = _Start.read(os.environ), Catalog.installed()
    parts = _parts(model)
    plan = _planned(model, parts, strategy_config, start, catalog)
    [stage] = plan.stages
    ranks = stage.world_size * len(stage.replicas)
    if ranks != start.world_size:
        raise ParallelError(f"the plan has `{ranks}` ranks, and `{start.world_size}` were started")
    axes = _Axes(stage, catalog)
    store = _store(start, within_s)
    device = next(next(iter(parts.values())).parameters()).device.type
    mesh = DeviceMesh.create(
        start.rank,
        layout_of(stage),
        store,
        connect=CONNECT[choose(device, one_host=start.one_host)],
        within_s=within_s,
    )
    _bind(parts, plan, axes, mesh, catalog)
    _draw_alike(store, start)
    return Parallelized(plan=plan, mesh=mesh)


# --- what is planned ----------------------------------------------------------------------------


def _parts(model: Any) -> dict[str, nn.Module]:  # noqa: ANN401  as above
    """Return the networks of a pipeline by their names; a network by itself is its denoiser."""
    if isinstance(model, nn.Module):
        return {_NETWORK: model}
    found: Mapping[str, object] = model.components
    return {name: each for name, each in found.items() if isinstance(each, nn.Module)}


def _planned(
    model: Any,  # noqa: ANN401  as above
    parts: Mapping[str, nn.Module],
    strategy: ConfigInput,
    start: _Start,
    catalog: Catalog,
) -> Plan:
    with tempfile.TemporaryDirectory(prefix="stagemesh-") as folder:
        _write_configs(model, parts, Path(folder))
        inputs = PlanInputs(
            model=folder, strategy_config=strategy, devices=start.world_size, argument="model"
        )
        made = make(inputs, read_host(), catalog)
    if made.plan is None:
        raise DiagnosticError(made.diagnostics)
    return made.plan


def _write_configs(
    model: Any,  # noqa: ANN401  as above
    parts: Mapping[str, nn.Module],
    folder: Path,
) -> None:
    """Write down the configuration of every part, as a checkpoint has it."""
    if isinstance(model, nn.Module):
        kind = type(model)
        library = kind.__module__.partition(".")[0]
        index = {"_class_name": "DiffusionPipeline", _NETWORK: [library, kind.__name__]}
        (folder / _INDEX).write_text(json.dumps(index), encoding="utf-8")
    else:
        model.save_config(folder)
    for name, part in parts.items():
        config: Any = part.config
        written: Any = part if isinstance(config, Mapping) else config  # `transformers` has a class
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text(written.to_json_string(), encoding="utf-8")


# --- what is bound ------------------------------------------------------------------------------


class _Axes:
    """The axes of a stage that have several ranks, each asked for by who carries it out."""

    def __init__(self, stage: StagePlan, catalog: Catalog) -> None:
        self._left = {axis.axis: axis for axis in stage.axes if axis.size > 1}
        for axis in self._left.values():
            for name, value in _changed(axis, catalog):
                message = f"`{name}` of `{axis.axis}` is `{value}`, which `parallelize` does not do"
                raise ParallelError(message)

    def take(self, name: str) -> AxisPlan | None:
        """Return an axis that is carried out."""
        return self._left.pop(name, None)

    def check(self) -> None:
        """Refuse those that nobody has asked for."""
        if self._left:
            names = ", ".join(f"`{name}`" for name in self._left)
            raise ParallelError(f"{names} of the plan is not carried out by `parallelize`")


def _changed(axis: AxisPlan, catalog: Catalog) -> Iterator[tuple[str, object]]:
    usual = catalog.axes[axis.axis].options
    for option in fields(usual):
        value = axis.options.get(option.name, option.default)
        if option.name not in _CARRIED_OUT and value != option.default:
            yield option.name, value


def _bind(
    parts: Mapping[str, nn.Module], plan: Plan, axes: _Axes, mesh: DeviceMesh, catalog: Catalog
) -> None:
    plans = _plans(plan, catalog)
    tp, ulysses, ring = (axes.take(name) for name in ("tp", "sp_ulysses", "sp_ring"))
    tiles = axes.take("vae_pp")
    axes.check()
    networks = [
        (found, part)
        for part in parts.values()
        if isinstance(found := plans.get(type(part).__name__), ModelPlan) and found.splits
    ]
    if not networks:
        kinds = ", ".join(f"`{type(part).__name__}`" for part in parts.values())
        raise ParallelError(f"no plan is about any of {kinds}")
    groups = Groups(tp=_over(mesh, tp), ulysses=_over(mesh, ulysses), ring=_over(mesh, ring))
    further = tuple(map(_binding, plan.stages[0].bindings))
    for found, part in networks:
        bind_network(found, part, groups, further)
    if tiles is not None:
        _bind_vaes(parts, plans, tiles, mesh)


def _binding(planned: BindingPlan) -> Binding:
    """Return what a strategy binds, as the plan has written it down."""
    if planned.kind == "hook":
        return LayerHookSpec(
            hook_id=planned.name,
            target=planned.target,
            category=HookCategory(planned.category),
            priority=planned.priority,
        )
    return KernelSpec(
        kernel_id=planned.name,
        target=planned.target,
        category=HookCategory(planned.category),
        priority=planned.priority,
        group_axis=planned.group_axis,
        requires_collective=planned.requires_collective,
    )


def _bind_vaes(
    parts: Mapping[str, nn.Module],
    plans: Mapping[str, ModelPlan | VaePlan],
    tiles: AxisPlan,
    mesh: DeviceMesh,
) -> None:
    mode, vaes = str(tiles.options["mode"]), 0
    for part in parts.values():
        found = plans.get(type(part).__name__)
        if isinstance(found, VaePlan):
            if mode == "tile":
                enable: Any = part.enable_tiling
                enable()
            bind_vae(found, part, _over(mesh, tiles), mode)
            vaes += 1
    if not vaes:
        raise ParallelError(f"`{tiles.axis}` has nothing to share: no plan is about a VAE here")


def _plans(plan: Plan, catalog: Catalog) -> Mapping[str, ModelPlan | VaePlan]:
    """Return the plans of classes that the pipeline refers to."""
    pipeline = next(
        each.pipeline for each in catalog.models if each.pipeline.model_type == plan.pipeline
    )
    assert pipeline.plans is not None
    declared: Any = resolve(pipeline.plans)
    return {each.name: each for each in declared()}


def _over(mesh: DeviceMesh, axis: AxisPlan | None) -> Communicator:
    """Return the group along an axis; a group of one where there is none."""
    if axis is not None:
        return mesh.over(axis.axis)
    alone = Group(axis="alone", ranks=(mesh.rank,), own=GroupRank(0))
    return Communicator(alone, None)


# --- the ranks ----------------------------------------------------------------------------------


def _store(start: _Start, within_s: float) -> Store:
    """Connect to the store of `torchrun`, or be it."""
    environ = os.environ
    if start.world_size == 1:
        return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    has_agent = environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    store = TCPStore(
        environ["MASTER_ADDR"],
        int(environ["MASTER_PORT"]),
        is_master=start.rank == 0 and not has_agent,
        timeout=timedelta(seconds=within_s),
        wait_for_workers=False,
    )
    return PrefixStore("stagemesh", store)


def _draw_alike(store: Store, start: _Start) -> None:
    """Let all ranks draw the same numbers from now on: a pipeline makes its noise on each."""
    if start.rank == 0:
        store.set("seed", str(secrets.randbits(63)))
    torch.manual_seed(int(store.get("seed")))
