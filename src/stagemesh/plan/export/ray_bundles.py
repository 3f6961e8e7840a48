"""A plan as placement groups for Ray.

A group holds the replicas that share devices, most often one; a bundle is one device of it, with
the ranks that lie there. All bundles of a group belong onto one node (`STRICT_PACK`), since a plan
is made for the devices of one host. A group says how many devices it needs and nothing else; what a
plan decides beside that is listed under `cannot_express`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.plan.devices import platform_of
from stagemesh.plan.export.launch_words import launch_words
from stagemesh.plan.export.stage_fields import device_list
from stagemesh.plan.sharing import sharing
from stagemesh.plan.values import Plan

_CPU_KIND: Final = "cpu"
_RESOURCES: Final[Mapping[str, str]] = {"cuda": "GPU", "npu": "NPU", "rocm": "GPU", "xpu": "GPU"}
"""What Ray counts the devices of a platform as, where it finds them itself."""


def ray_bundles(plan: Plan, _catalog: Catalog) -> str:
    """Write `{"placement_groups": [{"name", "strategy", "bundles", "ranks"}], ...}` as JSON.

    A bundle asks for one device, by the name that Ray has for its platform, and for one CPU for
    each rank on it; on CPU devices for CPUs alone.
    """
    kind = plan.devices.kind
    device: dict[str, float] = {} if kind == _CPU_KIND else {_resource(platform_of(kind)): 1}
    groups = []
    for ranks in _ranks(plan):
        replicas = sorted({rank.rpartition(".")[0] for held in ranks for rank in held})
        groups.append(
            {
                "name": "+".join(replicas),
                "strategy": "STRICT_PACK",
                "bundles": [{"CPU": len(held), **device} for held in ranks],
                "ranks": ranks,
            }
        )
    said = {
        "pipeline": plan.pipeline,
        "placement_groups": groups,
        "cannot_express": list(_unsaid(plan)),
    }
    return json.dumps(said, indent=2) + "\n"


def _resource(platform: str) -> str:
    """Return Ray's name for devices, or a name of ours where it has none."""
    return _RESOURCES.get(platform, platform.upper())


def _unsaid(plan: Plan) -> Iterator[str]:
    """Say what of the places of ranks is lost, and that all else is kept elsewhere."""
    devices, flags = plan.devices, launch_words(plan)
    if devices.kind != _CPU_KIND:
        platform = platform_of(devices.kind)
        name = _resource(platform)
        yield f"kind of device: `{devices.kind}`; Ray counts it as `{name}`, like all of that name"
        if platform not in _RESOURCES:
            count = f"--resources='{{\"{name}\": N}}'"
            yield f"how many devices a node has: Ray finds none of these; start it with `{count}`"
    for stage in plan.stages:
        yield f"`{stage.name}.devices: {device_list(stage)}`; Ray takes any that are free"
        if stage.memory is not None:
            yield f"`{stage.name}`: memory of a rank, {stage.memory.total} bytes"
        if stage.setup.numa is not None:
            yield f"`{stage.name}`: binding to NUMA nodes"
        if stage.setup.mps is not None:
            yield f"`{stage.name}`: CUDA MPS"
        for variable in stage.env:
            yield f"`{stage.name}.env.{variable}`; give it to the actors of the stage"
    if flags:
        yield f"how it is started: `{flags}`"
    yield "engines with arguments, axes, edges, sessions: `-o plan.json` without `--as` saves them"


def _ranks(plan: Plan) -> Iterator[list[list[str]]]:
    """The ranks on each device of each group, by name."""
    replicas = (
        (f"{stage.name}[{replica.index}]", replica)
        for stage in plan.stages
        for replica in stage.replicas
    )
    for group in sharing(replicas):
        yield [[f"{name}.{rank.rank}" for name, rank in group[device]] for device in sorted(group)]
