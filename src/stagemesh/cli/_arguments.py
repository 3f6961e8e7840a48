"""The arguments of every command that makes a plan, and how they become `PlanInputs`."""

from __future__ import annotations

import argparse

from stagemesh.config.inputs import PlanInputs
from stagemesh.spec.unset import UNSET


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add MODEL and everything that can be said about how it should run.

    What is not typed does not appear in the namespace, so that a typed default still counts.
    """
    parser.add_argument(
        "model", metavar="MODEL", help="folder of a checkpoint, or name of an assembled one"
    )
    group = parser.add_argument_group("layout", argument_default=argparse.SUPPRESS)
    group.add_argument("--strategy-config", metavar="FILE", help="parallel axes laid over stages")
    group.add_argument("--deploy-config", metavar="FILE", help="how the stages run")
    group.add_argument(
        "--stage-overrides", metavar="JSON", help="stage fields by stage name or number"
    )
    group.add_argument(
        "--async-chunk",
        action=argparse.BooleanOptionalAction,
        help="hand outputs from stage to stage in chunks, or whole",
    )
    group.add_argument(
        "--devices",
        metavar="N|NxNAME",
        help="so many devices of this host, or imaginary ones such as 8xH200",
    )


def inputs_from(namespace: argparse.Namespace) -> PlanInputs:
    """Gather what was typed."""
    typed = vars(namespace)
    return PlanInputs(
        model=namespace.model,
        strategy_config=typed.get("strategy_config", UNSET),
        deploy_config=typed.get("deploy_config", UNSET),
        stage_overrides=typed.get("stage_overrides", UNSET),
        async_chunk=typed.get("async_chunk", UNSET),
        devices=typed.get("devices", UNSET),
    )
