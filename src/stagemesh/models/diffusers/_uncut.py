"""What of the networks of a checkpoint cannot be cut, because no plan says how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stagemesh.models._diffusers.plans.lookup import model_plan, vae_plan
from stagemesh.spec.cost import Part
from stagemesh.spec.model_plan import ModelPlan
from stagemesh.spec.pipeline import CheckpointConfigs

_NETWORK: Final = (Part.WIDTH, Part.TOKENS, Part.BRANCHES, Part.SHARDS, Part.LAYERS)
_PICTURE: Final = (Part.TILES, Part.BANDS)
_TEXT: Final = "text_encoder"
"""What the folders of encoders of text begin with."""


def texts_of(names: Iterable[str]) -> tuple[str, ...]:
    """Of the components that read the request, those that read its text."""
    return tuple(name for name in names if name.startswith(_TEXT))


def uncut_network(configs: CheckpointConfigs, names: Iterable[str]) -> Mapping[str, str]:
    """What of the denoisers cannot be cut, each part with the reason."""
    return {
        part.value: reason
        for name in names
        for part in _NETWORK
        for reason in _of_network(configs, name, part)
    }


def uncut_encoders(
    configs: CheckpointConfigs, names: Iterable[str], *parts: Part
) -> Mapping[str, str]:
    """Which of `parts` cannot be cut where text encoders have no plan."""
    kinds = [_class(configs, name) for name in names]
    missing = [kind for kind in kinds if model_plan(kind) is None]
    return {part.value: f"`{kind}` has no plan" for kind in missing for part in parts}


def uncut_decoder(configs: CheckpointConfigs, names: Iterable[str]) -> Mapping[str, str]:
    """What of the VAE cannot be cut."""
    found: dict[str, str] = {}
    for name in names:
        kind = _class(configs, name)
        plan = vae_plan(kind)
        cut = frozenset[Part]() if plan is None else plan.parts
        reason = (
            f"`{kind}` has no plan" if plan is None else f"the plan of `{kind}` has tiles alone"
        )
        found |= {part.value: reason for part in _PICTURE if part not in cut}
    return found


def _of_network(configs: CheckpointConfigs, name: str, part: Part) -> Iterator[str]:
    kind = _class(configs, name)
    plan = model_plan(kind)
    if plan is None:
        yield f"`{kind}` has no plan"
        return
    config = configs.component(name)
    if part not in plan.parts_of(config):
        yield _why(plan, config, part)


def _why(plan: ModelPlan, config: Mapping[str, object], part: Part) -> str:
    for limit in plan.limits:
        if limit.part is part and config.get(limit.key) == limit.value:
            return f"with `{limit.key}` = `{limit.value}`, {limit.reason}"
    return f"the plan of `{plan.name}` does not cut it"


def _class(configs: CheckpointConfigs, name: str) -> str:
    """The class of a component, as `model_index.json` names it."""
    pair = configs.root.get(name)
    return str(pair[-1]) if isinstance(pair, list) and pair else ""
