"""Flags on the screen: help, what was meant by unknown ones, and what saved plans refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagemesh.cli._main import main
from stagemesh.cli._unknown import OTHER_WORDS
from stagemesh.config.flag_table import load_flags
from tests.cli.screens import check_screen


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["plan", "--help"], "plan_help"),
        (["plan", "--help-all"], "plan_help_all"),
        (["run", "--help"], "run_help"),
    ],
)
def test_help_shows_the_common_flags_and_all_of_them_when_asked(
    arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard output, in groups."""
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    check_screen(name, shown.out)


def test_help_of_all_flags_has_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """And the short one has the common ones alone."""
    main(["plan", "--help-all"])
    everything = capsys.readouterr().out
    main(["plan", "--help"])
    common = capsys.readouterr().out
    for flag in load_flags():
        assert flag.spellings[0] in everything
        assert (f" {flag.spellings[0]} " in common) <= flag.is_common


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "model"], "'engines'); did you mean 'models'?"),
        (["validat"], "'validate'); did you mean 'validate'?"),
        (["validate", "a.yaml", "--format", "JSON"], "'github'); did you mean 'json'?"),
        (["schema", "zebra"], "(choose from 'deploy', 'strategy')"),
    ],
)
def test_a_word_that_is_none_of_an_argument_has_a_near_one(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, kinds and formats; nothing where none is near."""
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith(f"{told}\n")


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--enable-turbo-mode", None),
        ("--enable-slep-mode", "--enable-sleep-mode"),
        ("--max-seqs", "--max-num-seqs"),
    ],
)
def test_only_a_near_flag_is_offered(
    flag: str, meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two flags whose own words differ are no slip of the keyboard, whatever they share."""
    assert main(["plan", "voice_chat", flag, "1"]) == 2
    offered = f"did you mean `{meant}`?" in capsys.readouterr().err
    assert offered is (meant is not None)


@pytest.mark.parametrize(
    ("arguments", "message", "help_text"),
    [
        (
            ["--stage-0-devices", "0"],
            "`--stage-0-devices`: a field of one stage has no flag of its own",
            """write `--set 0.devices=0` or `--stage-overrides '{"0": {"devices": "0"}}'`""",
        ),
        (
            ["--stage-0-env=it's a"],
            "`--stage-0-env`: a field of one stage has no flag of its own",
            """write `--set '0.env=it'"'"'s a'` or `--stage-overrides '{"0": {"env": "it'""",
        ),
        (
            ["--stage-1-max-num-seqs=4"],
            "error[CL011]: unknown flag `--stage-1-max-num-seqs`",
            """`--set 1.max_num_seqs=4` or `--stage-overrides '{"1": {"max_num_seqs": 4}}'`""",
        ),
        (
            ["--stage_1_gpu_memory_utilization", "0.5"],
            "error[CL011]: unknown flag `--stage_1_gpu_memory_utilization`",
            "write `--set 1.gpu_memory_utilization=0.5` or",
        ),
        (
            ["--stage-1-headless"],
            "error[CL011]: unknown flag `--stage-1-headless`",
            "write `--set 1.headless=VALUE` or",
        ),
        (
            ["--tensor-paralel-size", "2"],
            "error[CL010]: unknown flag `--tensor-paralel-size`",
            "did you mean `--tensor-parallel-size`?",
        ),
        (
            ["--tensor_parallel_size", "2"],
            "error[CL010]: unknown flag `--tensor_parallel_size`",
            "did you mean `--tensor-parallel-size`?",
        ),
        (
            ["--dev", "2"],
            "error[CL010]: unknown flag `--dev`",
            "did you mean `--devices`?",
        ),
        (
            ["--zebra-crossing"],
            "error[CL010]: unknown flag `--zebra-crossing`",
            "`--help-all` lists every flag; `--set STAGE.FIELD=VALUE` gives other fields",
        ),
        (
            ["--num-gpus", "4"],
            "error[CL012]: unknown flag `--num-gpus`: it is said in another way here",
            "`--devices N` says how many devices there are",
        ),
    ],
)
def test_an_unknown_flag_is_told_with_what_was_meant(
    arguments: list[str], message: str, help_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """P15, T66: also with the value that was typed; a flag is never guessed from its beginning."""
    assert main(["plan", "m", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert help_text in shown.err.partition("help: ")[2]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["plan"], 2), (["plan", "--deploy-config", "d.yaml"], 2), (["plan", ""], 1)],
)
def test_t63_a_model_has_to_be_named(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A deploy file is none, and neither is an empty word."""
    assert main(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("MODEL" in shown.err) or ("error[MD" in shown.err)


def test_unknown_flags_are_told_together_and_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Each once, with `--json` on standard output."""
    assert main(["plan", "m", "--x-y", "--x-y", "--omni", "--json"]) == 2
    shown = capsys.readouterr()
    found = json.loads(shown.out)["diagnostics"]
    assert [(each["code"], each["origin"]["source"]) for each in found] == [
        ("CL010", "--x-y"),
        ("CL012", "--omni"),
    ]


def test_a_command_without_fields_lists_its_own_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing that `--set` could give, and no flag of an axis."""
    for flag in ("--quiet", "--tp", "--cp"):
        assert main(["list", "axes", flag]) == 2
        assert "help: `--help` lists the flags of this command" in capsys.readouterr().err


SHORT = {
    "--tp": "did you mean `--tensor-parallel-size`?",
    "--dp": "did you mean `--data-parallel-size`?",
    "--pp": "did you mean `--pipeline-parallel-size`?",
    "--ep": "did you mean `--enable-expert-parallel`?",
    "--cfg": "did you mean `--cfg-parallel-size`?",
    "--hsdp": "did you mean `--use-hsdp`?",
    "--cp": "the axis has no flag: write `--set STAGE.cp=N`, or a strategy file",
    "--sp": "did you mean `--ring-degree` or `--ulysses-degree`?",
    "--vae": "did you mean `--vae-patch-parallel-size`?",
    "--tp-size": "did you mean `--tensor-parallel-size`?",
    "--tp_size": "did you mean `--tensor-parallel-size`?",
    "-tp": "did you mean `--tensor-parallel-size`?",
    "--TP": "did you mean `--tensor-parallel-size`?",
    "--Max-Num-Seqs": "did you mean `--max-num-seqs`?",
    "--max-model": "did you mean `--max-model-len`?",
    "--max-num": "did you mean `--max-num-seqs` or `--max-num-batched-tokens`?",
    "--GPUs": "`--devices N` says how many devices there are",
}


@pytest.mark.parametrize(("typed", "help_text"), SHORT.items())
def test_short_names_and_other_letters_lead_to_the_flag(
    typed: str, help_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of axes, beginnings of flags, and what differs in case alone."""
    assert main(["plan", "m", typed, "2", "--json"]) == 2
    [found] = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["help"] == help_text


def test_flags_that_are_said_otherwise_do_not_exist() -> None:
    """An entry is void as soon as the flag is there."""
    spelled = {name for flag in load_flags() for name in flag.spellings}
    assert spelled.isdisjoint(OTHER_WORDS)


def test_a_saved_plan_names_every_flag_that_cannot_change_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As each was typed."""
    file = tmp_path / "plan.json"
    file.write_text("{}", encoding="utf-8")
    flags = ["--usp", "2", "--set", "a.b=1", "--stage-overrides", "{}", "--stage-id", "1"]
    assert main(["run", str(file), "hi", *flags]) == 1
    told = capsys.readouterr().err
    for flag in ("--usp", "--set", "--stage-overrides", "--stage-id"):
        assert f"error[CL002]: `{flag}` cannot change the saved plan" in told
