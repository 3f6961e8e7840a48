"""Worked examples 1 and 2 of the strategy document, on the public numbers of Qwen2.5-Omni 7B."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.details import details_text
from stagemesh.plan.make import make
from stagemesh.plan.render import devices_text, plan_text
from stagemesh.plan.values import Plan

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "qwen2_5_omni"
HOST: Final = Host(kind="cpu", count=None, memory_bytes=192 * 2**30)
OVERRIDES: Final = '{"0": {"devices": "0,1"}, "1": {"devices": "2"}, "2": {"devices": "2"}}'

EXAMPLES: Final = {
    "strategy_tp2.yaml": """strategies:
  thinker:
    - axis: tp
      size: 2
""",
    "strategy_stage_replica.yaml": """strategies:
  thinker:
    - axis: stage_replica
      size: 2
      routing: round_robin
""",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def screen(name: str) -> str:
    """Return the text that is to be shown."""
    return (Path(__file__).parent / "screens" / f"{name}.txt").read_text(encoding="utf-8")


def whole_text(plan: Plan) -> str:
    """Everything that a plan shows."""
    return f"{plan_text(plan)}\n{details_text(plan)}"


def plan_of(strategy: str, overrides: str = OVERRIDES) -> Plan:
    """Plan the fixture under one of the strategies."""
    made = make(
        PlanInputs(model=str(FIXTURE), strategy_config=strategy, stage_overrides=overrides), HOST
    )
    assert made.plan is not None, made.diagnostics
    assert made.diagnostics == ()
    return made.plan


def sizes(plan: Plan) -> dict[str, tuple[int, int, dict[str, int]]]:
    """World, replicas and axes of every stage: the columns of the document's tables."""
    return {
        stage.name: (
            stage.world_size,
            len(stage.replicas),
            {axis.axis: axis.size for axis in stage.axes},
        )
        for stage in plan.stages
    }


def test_example_1_shards_the_thinker_over_two_devices() -> None:
    """Two on the thinker, one everywhere else, devices from the command line."""
    plan = plan_of("strategy_tp2.yaml")
    assert sizes(plan) == {
        "thinker": (2, 1, {"tp": 2}),
        "talker": (1, 1, {}),
        "code2wav": (1, 1, {}),
    }
    assert whole_text(plan) == screen("strategy_tp2")


def test_example_2_replicates_the_thinker_and_takes_turns() -> None:
    """Two replicas of one rank each, round robin between them, on the pool `0,1`."""
    plan = plan_of("strategy_stage_replica.yaml")
    assert sizes(plan) == {
        "thinker": (1, 2, {"stage_replica": 2}),
        "talker": (1, 1, {}),
        "code2wav": (1, 1, {}),
    }
    assert [stage.policy for stage in plan.stages] == ["round_robin"] * 3
    assert whole_text(plan) == screen("strategy_stage_replica")


def test_example_1_without_devices_is_placed_by_the_planner() -> None:
    """The deploy file that ships gives the thinker one device, and gives way to two."""
    plan = make(PlanInputs(model=str(FIXTURE), strategy_config="strategy_tp2.yaml"), HOST).plan
    assert plan is not None
    assert [devices_text(stage) for stage in plan.stages] == ["0,1", "2", "3"]


def test_example_1_with_one_device_names_count_file_and_remedy() -> None:
    """A deploy file of one's own binds, though its base ships with the model."""
    Path("deploy.yaml").write_text(
        'base_config: qwen2_5_omni\nstages:\n  - stage_id: 0\n    devices: "0"\n', encoding="utf-8"
    )
    inputs = PlanInputs(
        model=str(FIXTURE), strategy_config="strategy_tp2.yaml", deploy_config="deploy.yaml"
    )
    made = make(inputs, HOST)
    assert made.plan is None
    [found] = made.diagnostics
    assert found.message == "`thinker` lists `1` device and needs `2`: `2` ranks"
    assert str(found.origin) == "deploy.yaml:4:14"
    assert [str(note.origin) for note in found.notes] == ["strategy_tp2.yaml:4:13"]


def test_a_size_that_does_not_divide_the_heads_is_found_before_loading() -> None:
    """28 heads and 4 kv heads do not divide by 3."""
    strategy = {"strategies": {"thinker": [{"axis": "tp", "size": 3}]}}
    made = make(
        PlanInputs(
            model=str(FIXTURE),
            strategy_config=strategy,
            stage_overrides=json.dumps({"thinker": {"devices": "0,1,2"}}),
        ),
        HOST,
    )
    assert {found.code for found in made.diagnostics} == {"AX030"}


def test_eight_imaginary_devices_are_filled_in_stage_order() -> None:
    """Without `devices` everything is placed automatically."""
    cleared = json.dumps({name: {"devices": None} for name in ("thinker", "talker", "code2wav")})
    made = make(
        PlanInputs(
            model=str(FIXTURE),
            strategy_config="strategy_tp2.yaml",
            stage_overrides=cleared,
            devices="8xH200",
        ),
        HOST,
    )
    assert made.plan is not None
    placed = [[rank.device for rank in stage.replicas[0].ranks] for stage in made.plan.stages]
    assert placed == [[0, 1], [2], [3]]
    text = plan_text(made.plan)
    assert "8 imaginary H200 devices, 131.3 GiB each" in text
    assert text.count("--stage-overrides") == 3  # who took back the devices of the deploy file


def test_wrong_files_and_wrong_devices_are_told_together() -> None:
    """One run tells all mistakes of all inputs."""
    strategy = {"strategies": {"thinkr": [{"axis": "tp", "size": 2}]}}
    made = make(PlanInputs(model=str(FIXTURE), strategy_config=strategy, devices="many"), HOST)
    assert made.plan is None
    assert len(made.diagnostics) == 2
    assert made.diagnostics[-1].code == "PL001"
    alone = make(PlanInputs(model=str(FIXTURE), strategy_config=strategy), HOST)
    assert alone.diagnostics == made.diagnostics[:1]
