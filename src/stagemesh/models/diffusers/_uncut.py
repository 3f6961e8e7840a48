"""What of the networks of a checkpoint cannot be cut, because no plan says how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stagemesh.models._diffusers.plans.parts import cut_parts
from stagemesh.spec.cost import Part
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
        if (reason := _why_not(configs, name, part)) is not None
    }


def uncut_encoders(
    configs: CheckpointConfigs, names: Iterable[str], *parts: Part
) -> Mapping[str, str]:
    """Which of `parts` cannot be cut where text encoders have no plan."""
    missing = [kind for name in names if cut_parts(kind := _class(configs, name)) is None]
    return {part.value: f"`{kind}` has no plan" for kind in missing for part in parts}


def uncut_decoder(configs: CheckpointConfigs, names: Iterable[str]) -> Mapping[str, str]:
    """What of the VAE cannot be cut."""
    return {
        part.value: reason
        for name in names
        for part in _PICTURE
        if (reason := _why_not(configs, name, part)) is not None
    }


def _why_not(configs: CheckpointConfigs, name: str, part: Part) -> str | None:
    kind = _class(configs, name)
    plan = cut_parts(kind)
    if plan is None:
        return f"`{kind}` has no plan"
    reason = plan.why_not(configs.component(name), part)
    return None if reason is None else f"`{kind}`: {reason}"


def _class(configs: CheckpointConfigs, name: str) -> str:
    """The class of a component, as `model_index.json` names it."""
    pair = configs.root.get(name)
    return str(pair[-1]) if isinstance(pair, list) and pair else ""
