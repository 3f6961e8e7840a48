"""One cause is told once, with the other places as notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.causes import one_for_each_cause, without_advice_on_errors
from stagemesh.plan.make import make
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.unset import UNSET
from tests.config.flagged import codes_of, made_from, text_of
from tests.plan.fit.test_messages import FIXTURES, HOST
from tests.plan.test_flags_of_all_stages import fields_of

FLAG: Final = Origin(layer=Layer.GLOBAL, source="--flag")
WIDE: Final = Origin(layer=Layer.PIPELINE_WIDE, source="a.yaml", line=3, column=1)
HERE: Final = Origin(layer=Layer.DEPLOY, source="a.yaml", line=1, column=1)
THERE: Final = Origin(layer=Layer.DEPLOY, source="a.yaml", line=2, column=1)
WARNING: Final = Severity.WARNING
SET: Final = Note(message="set here", origin=FLAG)


def told(
    origin: Origin | None,
    message: str = "no",
    *notes: Note,
    code: str = "PL001",
    help_text: str | None = None,
) -> Diagnostic:
    """One finding."""
    return Diagnostic(code=code, message=message, origin=origin, notes=notes, help=help_text)


@pytest.mark.parametrize(
    ("found", "notes"),
    [
        ([told(FLAG), told(FLAG, "two")], [(Note(message="two"),)]),
        (
            [told(HERE, "no", SET), told(THERE, "two", SET)],
            [(SET, Note(message="two", origin=THERE))],
        ),
        ([told(HERE), told(HERE, "two")], [(), ()]),
        ([told(WIDE), told(WIDE, "two")], [(Note(message="two"),)]),
        ([told(HERE), told(THERE, "two")], [(), ()]),
        ([told(None), told(None, "two")], [(), ()]),
        ([told(FLAG), told(FLAG, code="PL002")], [(), ()]),
        ([told(FLAG, help_text="a"), told(FLAG, "two", help_text="a")], [(Note(message="two"),)]),
        (
            [told(FLAG, help_text="a"), told(FLAG, "two", help_text="b")],
            [(Note(message="two; b"),)],
        ),
        ([told(FLAG, help_text="a"), told(FLAG, "two")], [(Note(message="two"),)]),
    ],
)
def test_findings_of_one_code_and_one_value_are_one(
    found: list[Diagnostic], notes: list[tuple[Note, ...]]
) -> None:
    """What a flag for all stages says counts before the place of each."""
    joined = one_for_each_cause(found)
    assert [each.notes for each in joined] == notes
    assert joined[0].message == "no"


@pytest.mark.parametrize(
    ("wrong", "noted", "is_left_out"),
    [
        ("a.b", "a", True),
        ("a[0]", "a", True),
        ("a", "a", True),
        ("ab", "a", False),
        ("a", "a.b", False),
        ("b", "a", False),
        ("a.b", None, False),
    ],
)
def test_a_warning_about_what_an_error_is_inside_of_is_left_out(
    wrong: str, noted: str | None, *, is_left_out: bool
) -> None:
    """By the value that its note points to, in the same source."""

    def found(source: str) -> list[Diagnostic]:
        at = None if noted is None else replace(HERE, path=noted)
        warning = replace(told(THERE, "w", Note(message="n", origin=at)), severity=WARNING)
        return [warning, told(replace(HERE, path=wrong, source=source))]

    assert (len(without_advice_on_errors(found("a.yaml"))) == 1) is is_left_out
    assert len(without_advice_on_errors(found("b.yaml"))) == 2


def test_an_error_and_a_warning_stay_apart() -> None:
    """One stops the command."""
    warning = replace(told(FLAG), severity=WARNING)
    assert one_for_each_cause([told(FLAG), warning]) == (told(FLAG), warning)


_PLACES: Final = {"stages": [{"stage_id": each, "devices": "0"} for each in range(3)]}
_LISTS: Final = {"stage_id": 0, "numa_bind_nodes": [0], "numa_bind_cpus": ["0"]}


@pytest.mark.parametrize(
    ("model", "deploy", "line", "codes"),
    [
        ("qwen2_5_omni", None, "--tensor-parallel-size 4", []),
        ("qwen2_5_omni", _PLACES, "--tensor-parallel-size 4", ["PL010"]),
        ("qwen2_5_omni", None, "--tensor-parallel-size 3", ["AX030"]),
        ("qwen2_5_omni", None, "--tensor-parallel-size 64", ["AX030"]),
        ("qwen2_5_omni", None, "--numa-bind-nodes 0", ["PL150"]),
        ("qwen2_5_omni", {"stages": [_LISTS]}, "", ["PL150"]),
        ("qwen2_5_omni", {"base_config": "qwen3_tts"}, "", ["CF039"]),
        ("qwen2_5_omni", None, "--enable-expert-parallel", ["AX012"]),
        ("qwen2_5_omni", None, "--distributed-executor-backend uni --num-replicas 1", []),
        ("personaplex", None, "--model-runner v2", ["PL088"]),
        ("personaplex", None, "--gpu-memory-utilization 0.05", ["PL130"]),
        ("diffusers/flux", None, "--ulysses-mode strict --ulysses-a2a-permute", ["AX012"]),
    ],
)
def test_one_mistake_gives_one_finding(
    model: str, deploy: Mapping[str, object] | None, line: str, codes: list[str]
) -> None:
    """As a user makes it."""
    inputs = PlanInputs(
        model=str(FIXTURES / model),
        deploy_config=UNSET if deploy is None else deploy,
        devices="8xH200",
        fields=fields_of(line),
    )
    made = make(inputs, HOST)
    assert codes_of(made) == codes, text_of(made)


def test_two_mistakes_give_two_findings(tmp_path: Path) -> None:
    """Each stage has a size of its own that does not fit its own list."""
    deploy = {
        "stages": [
            {"stage_id": 0, "devices": "0", "tensor_parallel_size": 2},
            {"stage_id": 1, "devices": "0", "tensor_parallel_size": 2},
        ]
    }
    made = made_from(tmp_path, "--devices 8xH200", deploy=deploy)
    assert codes_of(made) == ["PL010", "PL010"], text_of(made)
