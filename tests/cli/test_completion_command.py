"""`stagemesh completion`: the scripts, and what bash makes of them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from stagemesh.cli._main import main
from stagemesh.cli._words import Kind, Takes, command_words
from stagemesh.cli.completion import SHELLS
from stagemesh.spec.registry import COMMANDS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed for a shell."""
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, and a cache with one checkpoint."""
    for name in ("cache/voice_chat", "cache/.partial", "examples"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "strategy.yaml").touch()
    return tmp_path


def completed(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """What bash offers behind a line; the last word is the one being typed."""
    program = "\n".join(
        [
            script("bash", capsys),
            f"COMP_WORDS=({' '.join(shlex.quote(word) for word in line.split(' '))})",
            "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))",
            "_stagemesh",
            'printf "%s\\n" "${COMPREPLY[@]}"',
        ]
    )
    done = subprocess.run(
        ["bash", "-u", "-c", program],  # noqa: S607  the shell that is being tested
        cwd=folder,
        env={**os.environ, "STAGEMESH_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands_are_completed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, or those that begin so."""
    names = {command.name for command in COMMANDS.declarations()}
    assert completed("stagemesh ", folder, capsys) == names
    assert completed("stagemesh pl", folder, capsys) == {"plan"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("stagemesh plan --strategy", {"--strategy-config"}),
        ("stagemesh plan ", {"voice_chat", "cache", "examples", "strategy.yaml"}),
        ("stagemesh plan vo", {"voice_chat"}),
        ("stagemesh plan --strategy-config str", {"strategy.yaml"}),
        ("stagemesh plan --strategy-config strategy.yaml vo", {"voice_chat"}),
        ("stagemesh --debug plan vo", {"voice_chat"}),
        ("stagemesh plan --values vo", {"voice_chat"}),
        ("stagemesh plan --as vl", {"vllm-omni"}),
        ("stagemesh plan voice_chat ", set()),
        ("stagemesh list a", {"axes"}),
        ("stagemesh list axes ", set()),
        ("stagemesh schema ", {"deploy", "strategy"}),
        ("stagemesh explain AX00", {f"AX00{number}" for number in range(1, 10)}),
        ("stagemesh explain thinker.sp_", {"thinker.sp_ring", "thinker.sp_ulysses"}),
        ("stagemesh explain max_num_s", {"max_num_seqs"}),
        ("stagemesh explain axis sp_", {"sp_ring", "sp_ulysses"}),
        ("stagemesh explain thinker.tp vo", {"voice_chat"}),
        ("stagemesh diff str", {"strategy.yaml"}),
        ("stagemesh diff a.json str", {"strategy.yaml"}),
        ("stagemesh validate a.yaml b.yaml str", {"strategy.yaml"}),
        ("stagemesh demo-checkpoint vo", {"voice_chat"}),
        ("stagemesh nonsense ", set()),
    ],
)
def test_words_are_completed(
    line: str, words: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags, what they take, and what stands at each place."""
    assert completed(line, folder, capsys) == words


def test_nothing_breaks_without_a_cache(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then there are only files."""
    (folder / "cache" / "voice_chat").rmdir()
    assert completed("stagemesh plan str", folder, capsys) == {"strategy.yaml"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_flag_is_in_every_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the parsers have them."""
    text = script(shell, capsys)
    for command in command_words():
        assert command.name in text
        for name in (name for flag in command.flags for name in flag.names):
            assert (name.lstrip("-") if shell == "fish" else name) in text


def test_zsh_takes_the_script_of_bash(capsys: pytest.CaptureFixture[str]) -> None:
    """Through its own emulation."""
    text = script("zsh", capsys)
    assert "bashcompinit\n" in text
    assert text.endswith(script("bash", capsys))


def test_fish_knows_what_arguments_take(capsys: pytest.CaptureFixture[str]) -> None:
    """Files, checkpoints, words, or nothing; every line can be read by a shell."""
    lines = script("fish", capsys).splitlines()
    plan = "complete -c stagemesh -n '__fish_seen_subcommand_from plan' "
    assert f"{plan}-a '(__stagemesh_models)' -F" in lines
    assert any(line.startswith(f"{plan}-l strategy-config -r -F -d ") for line in lines)
    assert any(line.startswith(f"{plan}-l values -d ") for line in lines)
    assert any(line.startswith(f"{plan}-s o -l output -r -F -d ") for line in lines)
    kinds = "complete -c stagemesh -n '__fish_seen_subcommand_from schema' -a 'deploy strategy'"
    assert kinds in lines
    assert all(shlex.split(line) for line in lines if line.startswith("complete "))


def test_a_script_can_be_had_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    """With the shell that it is for."""
    text = script("bash", capsys)
    assert main(["completion", "bash", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"shell": "bash", "script": text}


def test_the_last_place_of_a_command_may_be_filled_again() -> None:
    """Where its parser says so."""
    repeating = {command.name for command in command_words() if command.repeats}
    assert repeating == {"validate"}
    [validate] = [each for each in command_words() if each.name == "validate"]
    assert validate.positions == (Takes(kind=Kind.FILE),)
