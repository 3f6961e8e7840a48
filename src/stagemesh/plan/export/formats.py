"""The forms that `stagemesh plan --as` can write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from stagemesh.config.catalog import Catalog
from stagemesh.plan.export.deploy_yaml import deploy_yaml
from stagemesh.plan.export.ray_bundles import ray_bundles
from stagemesh.plan.export.vllm_omni import vllm_omni
from stagemesh.plan.values import Plan
from stagemesh.spec.frozen import frozen

Write: TypeAlias = Callable[[Plan, Catalog], str]
"""Writes a plan as text that ends with a newline."""


@frozen
class Format:
    """One form."""

    summary: str
    """One line for `--help`."""
    write: Write
    """Writes it."""


FORMATS: Final[Mapping[str, Format]] = {
    "yaml": Format(summary="one flat deploy file that gives the same plan", write=deploy_yaml),
    "vllm-omni": Format(
        summary="a deploy file for vllm-omni, and what it cannot express", write=vllm_omni
    ),
    "ray": Format(summary="placement groups for Ray, as JSON", write=ray_bundles),
}
"""Every form by the name that `--as` takes."""
