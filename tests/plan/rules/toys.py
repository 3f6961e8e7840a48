"""Toy pipelines planned from deploy files, for the tests of rules by topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stagemesh.config.host import Host
from stagemesh.config.inputs import GivenField, PlanInputs
from stagemesh.config.load import load
from stagemesh.plan.build import PlanRequest, PlanResult, build
from stagemesh.plan.devices import Devices, devices_from
from stagemesh.plan.make import Made
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.values import CheckpointPlan, Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from stagemesh.spec.unset import UNSET, Unset
from tests.plan.making import catalog, pipeline, stage

HOST: Final = Host(kind="cpu", count=None, memory_bytes=2**40)
GIB: Final = 2**30


def chain(*kinds: ExecutionType, **changes: object) -> PipelineConfig:
    """A pipeline of stages `s0`, `s1`, ... of these kinds, all of them alike but for their kind."""
    last: dict[str, object] = {"final_output": True, "final_output_type": "audio"}
    stages = [
        stage(
            number,
            f"s{number}",
            execution_type=kind,
            **(last if number == len(kinds) - 1 else {}),
            **changes,
        )
        for number, kind in enumerate(kinds)
    ]
    return pipeline(*stages)


AR: Final = ExecutionType.LLM_AR
DIT: Final = ExecutionType.DIFFUSION
ONE: Final = chain(AR)
TWO: Final = chain(AR, AR)
MIXED: Final = chain(AR, DIT)
DENOISER: Final = chain(DIT)


def listed(*entries: Mapping[str, object]) -> dict[str, object]:
    """A deploy file that says something about the first stages, in order."""
    return {"stages": [{"stage_id": number, **entry} for number, entry in enumerate(entries)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """A folder with a checkpoint, whose pipeline is planned in different ways."""

    folder: Path
    """The checkpoint."""
    model: PipelineConfig = ONE
    """Its pipeline."""
    devices: str | int | Unset = UNSET
    """What `--devices` says."""
    host: Host = HOST
    """The machine."""
    frontends: int = 1
    """What `--api-server-count` says."""
    launch: Mapping[str, object] = field(default_factory=dict)
    """Other options of the start."""
    facts: Mapping[str, StageFacts] = field(default_factory=dict)
    """What the checkpoint says, by stage."""

    def build(self, *deploys: Mapping[str, object], overrides: object = UNSET) -> PlanResult:
        """Plan with deploy files, each lying on the one before."""
        (self.folder / "config.json").write_text("{}", encoding="utf-8")
        deploy: dict[str, object] = {}
        for number, each in enumerate(deploys):
            base = {"base_config": f"{number - 1}.json"} if number else {"pipeline": "toy"}
            deploy = {**base, **each}
            if number < len(deploys) - 1:
                (self.folder / f"{number}.json").write_text(json.dumps(deploy), encoding="utf-8")
        file = self.folder / "deploy.json"
        file.write_text(json.dumps(deploy or {"pipeline": "toy"}), encoding="utf-8")
        known = catalog(self.model)
        devices = devices_from(self.devices, self.host)
        assert isinstance(devices, Devices)
        inputs = PlanInputs(
            model=str(self.folder),
            deploy_config=file,
            stage_overrides=overrides,  # type: ignore[arg-type]
            fields=self.fields(),
        )
        loaded = load(inputs, known, devices.platform)
        if loaded.settings is None or loaded.pipeline is None or loaded.checkpoint is None:
            return PlanResult(plan=None, diagnostics=loaded.diagnostics)
        result = build(
            PlanRequest(
                pipeline=loaded.pipeline,
                settings=loaded.settings,
                checkpoint=CheckpointPlan(
                    path=str(self.folder), config_hash=loaded.checkpoint.config_hash
                ),
                facts=self.facts,
                devices=devices,
            ),
            known,
        )
        return PlanResult(plan=result.plan, diagnostics=(*loaded.diagnostics, *result.diagnostics))

    def fields(self) -> tuple[GivenField, ...]:
        """What the flags of the start say."""
        options = {"api_server_count": self.frontends} if self.frontends > 1 else {}
        return tuple(
            GivenField(name=name, value=value, source=f"--{name.replace('_', '-')}")
            for name, value in {**options, **self.launch}.items()
        )

    def plan(self, *deploys: Mapping[str, object], overrides: object = UNSET) -> Plan:
        """Plan what must have no mistake."""
        result = self.build(*deploys, overrides=overrides)
        assert result.plan is not None, result.diagnostics
        return result.plan

    def found(self, *deploys: Mapping[str, object], overrides: object = UNSET) -> list[str]:
        """Return what is found, as `CODE: message`, a warning with `?` after the code."""
        return [_line(each) for each in self.build(*deploys, overrides=overrides).diagnostics]

    def one(self, *deploys: Mapping[str, object]) -> Diagnostic:
        """Return the only finding."""
        [found] = self.build(*deploys).diagnostics
        return found

    def reopened(self, plan: Plan) -> Made:
        """Save a plan and open it again on the same machine."""
        file = self.folder / "plan.json"
        file.write_text(to_json(plan), encoding="utf-8")
        return open_saved(file, self.host, catalog(self.model))

    def keeps(self, plan: Plan) -> None:
        """A plan that was saved is taken back as it is."""
        made = self.reopened(plan)
        assert made.plan == plan, made.diagnostics


def _line(found: Diagnostic) -> str:
    assert len(found.message) <= 100, found.message
    return f"{found.code}{'' if found.is_error else '?'}: {found.message}"
