"""The arguments of every command that makes a plan, and how they become `PlanInputs`."""

from __future__ import annotations

import argparse

from stagemesh.cli._flags import DEST, add_field_flags
from stagemesh.config.inputs import PlanInputs
from stagemesh.spec.unset import UNSET

MODEL_HELP = "folder of a checkpoint, or name of an assembled one"


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add MODEL and everything that can be said about how it should run."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    add_layout_arguments(parser)


def add_layout_arguments(parser: argparse.ArgumentParser) -> None:
    """Add everything that can be said about how a model should run.

    What is not typed does not appear in the namespace, so that a typed default still counts.
    """
    group = parser.add_argument_group("layout", argument_default=argparse.SUPPRESS)
    group.add_argument("--strategy-config", metavar="FILE", help="parallel axes laid over stages")
    group.add_argument("--deploy-config", metavar="FILE", help="how the stages run")
    group.add_argument(
        "--stage-overrides", metavar="JSON", help="stage fields by stage name or number"
    )
    group.add_argument(
        "--set",
        action="append",
        dest="set_values",
        metavar="STAGE.FIELD=VALUE",
        help="one field of one stage, such as thinker.tp=2; may be given several times",
    )
    group.add_argument(
        "--devices",
        metavar="N|NxNAME",
        help="so many devices of this host, or imaginary ones such as 8xH200",
    )
    add_field_flags(parser, {"layout": group})


def inputs_from(namespace: argparse.Namespace) -> PlanInputs:
    """Gather what was typed."""
    typed = vars(namespace)
    return PlanInputs(
        model=namespace.model,
        strategy_config=typed.get("strategy_config", UNSET),
        deploy_config=typed.get("deploy_config", UNSET),
        stage_overrides=typed.get("stage_overrides", UNSET),
        set_values=tuple(typed.get("set_values", ())),
        fields=typed.get(DEST, ()),
        devices=typed.get("devices", UNSET),
    )


def layout_flags(namespace: argparse.Namespace) -> list[str]:
    """Return the flags that were typed and make a plan, as they were typed."""
    typed = vars(namespace)
    names = ("strategy_config", "deploy_config", "stage_overrides", "devices")
    flags = [f"--{name.replace('_', '-')}" for name in names if name in typed]
    flags += ["--set"] if "set_values" in typed else []
    return sorted({*flags, *(field.source for field in typed.get(DEST, ()))})
