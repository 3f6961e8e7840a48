"""Numbers of commands are read as files have them."""

from __future__ import annotations

import pytest

from stagemesh.cli._main import main
from stagemesh.cli._numbers import decimal, whole

ZERO = "a number must not begin with `0`, got `{}`: write `{}`"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("serve", "voice_chat", "--port", "08080"), "--port: " + ZERO.format("08080", 8080)),
        (
            ("serve", "voice_chat", "--queue-limit", "010"),
            "--queue-limit: " + ZERO.format("010", 10),
        ),
        (("scale", "thinker", "02"), "N: " + ZERO.format("02", 2)),
        (
            ("plan", "voice_chat", "--fit", "2", "--fit-top", "03"),
            "--fit-top: " + ZERO.format("03", 3),
        ),
        (("run", "voice_chat", "hi", "--timeout", "060"), "--timeout: " + ZERO.format("060", 60)),
        (("scale", "thinker", "1_0"), "N: must be a whole number, got `1_0`"),
        (("scale", "thinker", "two"), "N: must be a whole number, got `two`"),
        (
            ("run", "voice_chat", "hi", "--timeout", "long"),
            "--timeout: invalid float value: 'long'",
        ),
        (("run", "voice_chat", "hi", "--timeout", "01s"), "--timeout: invalid float value: '01s'"),
    ],
)
def test_a_number_that_files_refuse_is_wrong_usage(
    command: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the same words, whichever command takes it."""
    assert main(command) == 2
    assert f"argument {told}" in capsys.readouterr().err


def test_a_number_without_a_zero_in_front_is_taken() -> None:
    """Zero itself has none."""
    assert (whole("0"), whole("-12"), decimal("0.5"), decimal("1e3")) == (0, -12, 0.5, 1000)
