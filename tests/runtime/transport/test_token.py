"""The shared secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stagemesh.config.environment import TOKEN
from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import DiagnosticError
from stagemesh.runtime.transport.token import Secret, check_bind, idle_permission, read_secret

GOOD = "0123456789abcdef"


def token_file(folder: Path, text: str | bytes, mode: int = 0o600) -> LaunchOptions:
    """Options that name a file with that text."""
    path = folder / "token"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return LaunchOptions(omni_token_file=str(path))


def test_the_file_goes_before_the_environment(tmp_path: Path) -> None:
    """White space around a token is none of it; without either there is no token."""
    named = token_file(tmp_path, f"  {GOOD}\n")
    other = "another of that length"
    assert read_secret(named, {TOKEN: other}).token == GOOD.encode()
    assert read_secret(LaunchOptions(), {TOKEN: other}).token == other.encode()
    assert not read_secret(LaunchOptions(), {}).is_known


@pytest.mark.parametrize(
    ("text", "mode", "code", "told"),
    [
        ("short", 0o600, "RT021", "the token has `5` characters, and needs `16`"),
        (GOOD, 0o644, "RT020", "others than its owner may use the token's file, mode `644`"),
        (b"\xff" * 20, 0o600, "RT020", "the token's file is no text"),
        ("x" * 5000, 0o600, "RT020", "the token's file is none that holds a token"),
    ],
)
def test_a_token_that_is_no_good_is_told(
    text: str | bytes, mode: int, code: str, told: str, tmp_path: Path
) -> None:
    """By what is wrong with it, and never by its text."""
    with pytest.raises(DiagnosticError) as caught:
        read_secret(token_file(tmp_path, text, mode), {})
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == (code, told)
    assert GOOD not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With what the system says of it."""
    with pytest.raises(DiagnosticError, match="cannot be read: no such file") as caught:
        read_secret(LaunchOptions(omni_token_file=str(tmp_path / "none")), {})
    assert caught.value.diagnostics[0].code == "RT020"
    with pytest.raises(DiagnosticError, match=r"is none that holds|is a directory"):
        read_secret(LaunchOptions(omni_token_file=str(tmp_path)), {})


def test_a_malformed_variable_is_told_by_its_name() -> None:
    """The value stays hidden."""
    with pytest.raises(DiagnosticError, match=TOKEN) as caught:
        read_secret(LaunchOptions(), {TOKEN: "hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104  what is refused
        ("::", False),
        ("192.0.2.1", False),
        ("no such host", False),
    ],
)
def test_others_may_not_come_in_without_a_token(address: str, allowed: bool) -> None:  # noqa: FBT001  a column
    """Where other hosts reach, it takes a token, or saying that none is wanted."""
    found = check_bind(address, Secret(), is_insecure=False)
    assert (found == ()) is allowed
    assert all(
        (one.code, "--insecure-no-token" in str(one.help)) == ("RT022", True) for one in found
    )
    assert check_bind(address, Secret(token=b"x"), is_insecure=False) == ()
    assert check_bind(address, Secret(), is_insecure=True) == ()


@pytest.mark.parametrize(
    ("launch", "address", "key", "is_told"),
    [
        (LaunchOptions(insecure_no_token=True), None, Secret(), True),
        (LaunchOptions(insecure_no_token=True), "127.0.0.1", None, True),
        (LaunchOptions(insecure_no_token=True), "::", Secret(token=b"x"), True),
        (LaunchOptions(insecure_no_token=True), "::", None, False),
        (LaunchOptions(insecure_no_token=True, stage_id=0), "127.0.0.1", None, False),
        (LaunchOptions(), "127.0.0.1", None, False),
    ],
)
def test_a_permission_that_nobody_could_use_is_told(
    launch: LaunchOptions,
    address: str | None,
    key: Secret | None,
    is_told: bool,  # noqa: FBT001  a column
) -> None:
    """A start of several may use it, and users that other hosts' addresses reach."""
    found = idle_permission(launch, address, key)
    assert [one.code for one in found] == ["RT025"] * is_told
    assert not any(one.is_error for one in found)


def test_a_secret_does_not_show_itself() -> None:
    """Neither in a log nor in a traceback."""
    assert GOOD not in repr(Secret(token=GOOD.encode()))
    assert GOOD not in os.fspath(str(Secret(token=GOOD.encode())))
