"""Every option that takes one value takes it once; what is given again is never lost in silence."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import pytest

from stagemesh.cli._flags import FieldAction
from stagemesh.cli._main import main, whole_parser
from stagemesh.cli._parser import Once, Parser, WrongUsageError


def options() -> Iterator[tuple[str, argparse.Action]]:
    """Every option of every command that takes a value and is no flag of a field."""
    [commands] = (
        each for each in whole_parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    for name, parser in commands.choices.items():
        for action in parser._actions:
            if action.option_strings and action.nargs != 0 and not isinstance(action, FieldAction):
                yield name, action


def test_only_values_that_are_collected_may_be_given_again() -> None:
    """One rule for all commands: each option with a value is of the action that tells."""
    found = [(name, action) for name, action in options() if not isinstance(action, Once)]
    assert {action.option_strings[0] for _, action in found} == {"--set"}
    assert all(isinstance(action, argparse._AppendAction) for _, action in found)


@pytest.mark.parametrize(
    "given",
    [
        ("--stage-overrides", "{}", "--stage-overrides", '{"0": {"tp": 2}}'),
        ("--strategy-config", "a.yaml", "--strategy-config", "b.yaml"),
        ("--deploy-config", "a.yaml", "--deploy-config", "a.yaml"),
        ("--devices", "2", "--devices", "2"),
        ("-o", "a.json", "--output", "b.json"),
        ("--fit-top", "2", "--fit-top", "3"),
        ("--as", "ray", "--as", "yaml"),
    ],
)
def test_both_places_are_named(given: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """As they were typed, equal values too; nothing is planned."""
    assert main(["plan", "nowhere", *given]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"error[CL014]: `{given[2]}` is given again, and takes one value" in shown.err
    assert f"--> {given[2]} {given[3]}" in shown.err
    assert f"first given here ({given[0]} {given[1]})" in shown.err


def test_each_further_value_is_told_together_with_unknown_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All that is wrong with the usage, as data where that was asked for."""
    given = ("--devices", "1", "--devices", "2", "--devices", "3", "--nothing")
    assert main(["plan", "nowhere", *given, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [each["code"] for each in told] == ["CL014", "CL014", "CL010"]


def test_what_is_collected_may_be_given_again(capsys: pytest.CaptureFixture[str]) -> None:
    """`--set` says something of another field each time."""
    given = ("--set", "thinker.tp=1", "--set", "thinker.max_num_seqs=4")
    assert main(["plan", "nowhere", *given]) == 1
    assert "CL014" not in capsys.readouterr().err


def test_a_parser_forgets_what_it_parsed() -> None:
    """Two parses are not one."""
    parser = Parser()
    parser.add_argument("--one")
    assert parser.parse_args(["--one", "a"]).one == "a"
    assert parser.parse_args(["--one", "b"]).one == "b"
    with pytest.raises(WrongUsageError):
        parser.parse_args(["--one", "a", "--one", "a"])
