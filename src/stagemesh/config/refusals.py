"""Keys that look like settings and are none: each is refused with the reason and the way out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from stagemesh.config.check import hints, tell_unknown_key
from stagemesh.config.fields import StageField
from stagemesh.config.flow import HIDDEN, flow_text
from stagemesh.config.place import Place, Run
from stagemesh.config.schema import STAGE_KEY, DeployFile, StrategyFile, device_ids_text
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import SIZE
from stagemesh.spec.diagnostic import did_you_mean, nearest
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig

_NESTED: Final = frozenset({"engine_args", "runtime", "parallel_config", "model_config"})
"""Mappings of an older layout, whose members are stage fields now."""

_COUNTED: Final = (
    "how many devices a stage takes follows from its axes, such as `tensor_parallel_size`; which"
    " they are is said by `devices`"
)
_RESERVED: Final[Mapping[str, str]] = {
    "use_v2_model_runner": "write `model_runner: v2`",
    "supports_native_mrv2_data_plane": "the pipeline says it; leave it out",
    **dict.fromkeys(("num_gpus", "num_devices", "world_size"), _COUNTED),
}
"""Keys that are only ever derived, with what to do instead."""

_IDLE: Final[Mapping[str, str]] = {
    "default_pooling_params": "no kind of stage pools embeddings; leave it out",
}
"""Keys that mean something elsewhere and nothing here, with the reason."""

_DEVICES: Final = "devices"

_TOPOLOGY: Final = frozenset(
    item.name for kind in (StagePipelineConfig, PipelineConfig) for item in dataclasses.fields(kind)
) - {STAGE_KEY}
"""What the declaration of a pipeline holds."""

_OF_REQUESTS: Final = (
    "no field of a stage is near; write a parameter of requests in its `default_sampling_params`"
)
STRATEGY_FILE: Final = "give a strategy file as `--strategy-config`, in Python `strategy_config`"
"""Where what a strategy file holds belongs."""
DEPLOY_FILE: Final = "give a deploy file as `--deploy-config`, in Python `deploy_config`"
"""Where what a deploy file holds belongs."""


def tell_no_stage_field(
    name: str | int,
    value: object,
    container: Place,
    run: Run,
    fields: Mapping[str, StageField],
    others: Iterable[str] = (),
) -> None:
    """Say why `name` is no field of the stage that `container` is the entry of.

    `others` may stand there beside the fields.
    """
    here = container.child(name)
    if name == STAGE_KEY:
        remedy = "the key around it says which stage is meant; leave it out"
        tell_unknown_key(name, container, run, remedy)
    elif name in hints(DeployFile):
        message = f"{quoted(name)} is a field of the whole pipeline"
        run.tell("CF025", message, here.key_origin, "write it at the root of the deploy file")
    elif (field := _field_of_axis(str(name), fields)) is not None:
        remedy = f"`{name}` is an axis: write `{field}`, or an entry of a strategy file"
        tell_unknown_key(name, container, run, remedy)
    elif not tell_refused(str(name), value, here, run):
        _tell_unknown(str(name), container, run, [*fields, *others])


def _tell_unknown(name: str, container: Place, run: Run, allowed: list[str]) -> None:
    """What is near no field may be a parameter of requests, which many write beside the fields."""
    is_slip = nearest(name, allowed) is not None
    remedy = did_you_mean(name, allowed) if is_slip else _OF_REQUESTS
    tell_unknown_key(name, container, run, remedy)


def _field_of_axis(name: str, fields: Mapping[str, StageField]) -> str | None:
    """Return the field that lays an axis of that name over a stage, if there is one."""
    axes = (each.axis for each in fields.values() if each.axis is not None)
    axis = next((each for each in axes if each.name == name), None)
    return None if axis is None else axis.field_for(SIZE) or axis.switch


def tell_refused(name: str, value: object, place: Place, run: Run) -> bool:
    """Say why `name` is no setting at all; false when nothing is known against it."""
    if name in _NESTED:
        _tell_nested(name, value, place, run)
    elif name in _RESERVED:
        message = f"{quoted(name)} follows from other values and cannot be given"
        run.tell("CF027", message, place.key_origin, _RESERVED[name])
    elif name in _IDLE:
        message = f"{quoted(name)} has no effect on any stage"
        run.tell("CF028", message, place.key_origin, _IDLE[name])
    elif name in hints(StrategyFile):
        message = f"{quoted(name)} is what a strategy file holds"
        run.tell("CF029", message, place.key_origin, STRATEGY_FILE)
    elif name in _TOPOLOGY:
        message = f"{quoted(name)} is no setting: the pipeline holds the topology"
        help_text = "leave it out; `pipeline:` at the root of the file chooses another pipeline"
        run.tell("CF026", message, place.key_origin, help_text)
    else:
        return False
    return True


def _tell_nested(name: str, value: object, place: Place, run: Run) -> None:
    help_text = "write stage fields directly in the entry of the stage"
    if isinstance(value, Mapping) and value:
        help_text += ": " + ", ".join(flat_field(*item) for item in value.items())
    run.tell("CF023", f"{quoted(name)} is not nested here", place.key_origin, help_text)


def flat_field(name: object, value: object) -> str:
    """Show a field as it would be written in an entry."""
    devices = device_ids_text(value) if name == _DEVICES else None
    value = value if devices is None else devices
    shown = HIDDEN if isinstance(value, Mapping | tuple) else flow_text(value)
    return f"`{flow_text(str(name))}: {shown}`"
