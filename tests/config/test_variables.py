"""The environment of a stage: no name that decides what runs, no secret, nothing of it shown."""

from __future__ import annotations

import pytest

from stagemesh.config.variables import RESERVED, SECRET, masked
from tests.config.speech import Speech, told, value

RESERVED_HELP = "no name may start with `PYTHON`, `LD_` or `STAGEMESH_`"
SECRET_HELP = "export it instead: stages inherit the environment of the command"


def deploy(name: str, given: object = "hunter2") -> str:
    """A deploy file with one variable."""
    return f"stages:\n  - stage_id: 0\n    env: {{{name}: {given}}}\n"


@pytest.mark.parametrize(
    "name", ["PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "LD_LIBRARY_PATH", "STAGEMESH_CACHE"]
)
def test_a_name_that_decides_what_runs_is_refused(speech: Speech, name: str) -> None:
    """At its key."""
    loaded = speech.load(deploy=deploy(name))
    message = f"`thinker.env.{name}` cannot be set for a stage: it decides what runs there"
    assert told(loaded) == [f"CF015 deploy.yaml:3:11: {message}"]
    assert loaded.diagnostics[0].help == RESERVED_HELP


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "hf_token",
        "AWS_SESSION_TOKEN",
        "API_TOKEN_2",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
        "APIKEY",
        "PGPASSWORD",
        "DB_PASSWD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_PRIVATE_KEY",
    ],
)
def test_a_secret_is_refused_and_not_repeated(speech: Speech, name: str) -> None:
    """Whatever type its value has, no message shows it."""
    for given in ("hunter2", 4711, "[4711]"):
        loaded = speech.load(deploy=deploy(name, given))
        message = f"`thinker.env.{name}` looks like a secret, and a plan shows every value"
        assert told(loaded) == [f"CF015 deploy.yaml:3:11: {message}"]
        assert loaded.diagnostics[0].help == SECRET_HELP


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "OLD_PATH"])
def test_other_names_are_taken(speech: Speech, name: str) -> None:
    """A part of a word makes no secret."""
    assert value(speech.load(deploy=deploy(name, "'1'")), "thinker", "env") == {name: "1"}


def test_overrides_follow_the_same_rule(speech: Speech) -> None:
    """As text and as a mapping."""
    given = {"thinker": {"env": {"LD_PRELOAD": "x.so", "HF_TOKEN": "hunter2"}}}
    loaded = speech.load(overrides=given)
    assert [found.code for found in loaded.diagnostics] == ["CF015", "CF015"]
    assert "hunter2" not in str(loaded.diagnostics)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("env: {HF_TOKEN: hunter2}", "env: {HF_TOKEN: ***"),
        ('  "hf_token": hunter2', '  "hf_token": ***'),
        ("A: 1, DB-PASSWORD: x, B: 2", "A: 1, DB-PASSWORD: ***"),
        ("max_tokens: -5", "max_tokens: -5"),
        ("stop_token_ids: [HF_TOKEN]", "stop_token_ids: [HF_TOKEN]"),
    ],
)
def test_a_line_is_shown_without_secrets(line: str, shown: str) -> None:
    """From the name of the first one on."""
    assert masked(line) == shown


def test_no_name_is_both(speech: Speech) -> None:
    """So that there is one finding for each."""
    loaded = speech.load(deploy=deploy("A-TOKEN-B"))
    assert [found.code for found in loaded.diagnostics] == ["CF013"]
    assert not any(RESERVED.matches(name) and SECRET.matches(name) for name in ("A", "LD_A"))
