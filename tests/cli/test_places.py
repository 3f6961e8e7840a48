"""What is wrong with a command line is told at the argument at fault, wherever it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import pytest

from stagemesh.cli._main import main
from stagemesh.config.flag_table import Flag, load_flags
from tests.cli.screens import stand_in

Json: TypeAlias = Any
"""A value as a program reads it."""

BEFORE: Final = ("--max-num-seqs", "4", "--block-size", "16", "--num-threads", "1")
"""Flags that are well, and are typed first."""
BAD: Final = {"integer": "x", "integers": "x", "number": "x", "object": "{", "switch": None}
"""A value that no field of such a form takes; a switch is refused where it cannot be used."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)


def found(capsys: pytest.CaptureFixture[str], command: str, *arguments: str) -> list[Json]:
    """What is told about a command line."""
    main([command, *arguments, "--json"])
    return cast("list[Json]", json.loads(capsys.readouterr().out).get("diagnostics", []))


def words(flag: Flag) -> list[str]:
    """A flag with a value that is wrong, as far as a value of its form can be."""
    value = BAD.get(flag.form, "no such word")
    return [flag.spellings[0], *([] if value is None else [value])]


def test_every_flag_is_told_at_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """A value of a wrong type, an unknown word, or a flag that no stage can use."""
    refused = 0
    for flag in load_flags():
        if flag.spellings[0] in BEFORE:
            continue
        told = found(capsys, "plan", "voice_chat", *BEFORE, *words(flag), "--headless")
        sources = {each["origin"]["source"] for each in told} - {"--headless"}
        assert sources <= {flag.spellings[0]}, told
        refused += bool(sources)
    assert refused > len(load_flags()) // 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--max-model-len", "1"), [("PL023", "--max-model-len")]),
        (("--max-model-len", "99999999"), [("PL060", "--max-model-len")]),
        (("--kv-cache-memory-bytes", "1"), [("PL061", "--kv-cache-memory-bytes")]),
        (
            ("--set", "thinker.dtype=float32", "--set", "thinker.max_model_len=1"),
            [("PL023", "--set thinker.max_model_len=1")],
        ),
        (("--set", "thinker.tp=2", "--set", "talker.tq=2"), [("CF010", "--set talker.tq=2")]),
        (("--stage-overrides", '{"0": {"max_model_len": 1}}'), [("PL023", "--stage-overrides")]),
        (("--tensor-parallel-size", "0"), [("CF013", "--tensor-parallel-size")]),
        (("--devices", "8xH2000"), [("PL002", "--devices")]),
        (
            ("--devices", "8xH200", "--default-sampling-params", "["),
            [("CF002", "--default-sampling-params")],
        ),
    ],
)
def test_a_value_that_only_the_plan_refuses_is_told_at_itself(
    arguments: tuple[str, ...],
    told: list[tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not at the first thing that was typed."""
    shown = found(capsys, "plan", "voice_chat", *BEFORE, *arguments)
    assert [(each["code"], each["origin"]["source"]) for each in shown] == told


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (("plan", "nowhere"), "MODEL"),
        (("validate", "strategy.yaml", "--model", "nowhere"), "--model"),
        (("diff", "strategy.yaml", "strategy.yaml", "--model", "nowhere"), "--model"),
        (("validate", "strategy.yaml", "--pipeline", "nowhere"), "--pipeline"),
    ],
)
def test_a_model_is_told_where_it_was_given(
    command: tuple[str, ...], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind the command, or behind a flag."""
    Path("strategy.yaml").write_text("strategies: {thinker: []}\n", encoding="utf-8")
    shown = found(capsys, *command)
    assert {each["origin"]["source"] for each in shown} == {place}
