"""Reading one JSON file of a checkpoint: each way to fail is one diagnostic, and none hangs."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from stagemesh.config.json_file import read_json_file
from stagemesh.errors import DiagnosticError


def refused(file: Path, limit: int = 100) -> str:
    """Read what must fail, and show the one finding."""
    with pytest.raises(DiagnosticError) as error:
        read_json_file(file, "a/b.json", limit)
    (found,) = error.value.diagnostics
    assert found.origin is not None
    assert found.origin.source == str(file)
    place = f" {found.origin.line}:{found.origin.column}" if found.origin.line else ""
    return f"{found.code}{place}: {found.message}"


def test_an_object_comes_with_the_digest_of_its_file(tmp_path: Path) -> None:
    """Exactly the bytes that were read."""
    file = tmp_path / "b.json"
    file.write_bytes(b'{"a": [1, Infinity]} ')
    read = read_json_file(file, "b.json")
    assert read is not None
    assert read.content == {"a": [1, float("inf")]}
    assert read.digest == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    """Nor is one below a file."""
    (tmp_path / "a").touch()
    assert read_json_file(tmp_path / "b.json", "b.json") is None
    assert read_json_file(tmp_path / "a" / "b.json", "b.json") is None
    (tmp_path / "b.json").symlink_to("gone")
    assert read_json_file(tmp_path / "b.json", "b.json") is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"a": ', "MD006 1:7: `a/b.json` is not valid JSON: expecting value"),
        (b"\xff\xfe\x00", "MD006: `a/b.json` is not valid JSON"),
        (b"[]", "MD006: `a/b.json` must hold an object"),
        (b"null", "MD006: `a/b.json` must hold an object"),
        (b" " * 2**20 + b"{}", "MD034: `a/b.json` is larger than `1` MiB"),
        (b"[" * 2**20, "MD006: `a/b.json` is not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "MD006: `a/b.json` is not valid JSON"),
    ],
)
def test_content_that_cannot_be_used_says_so(tmp_path: Path, content: bytes, expected: str) -> None:
    """With the place, where there is one."""
    file = tmp_path / "b.json"
    file.write_bytes(content)
    assert refused(file, 2**20) == expected


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe would never answer, and a device never end."""
    file = tmp_path / "b.json"
    os.mkfifo(file)
    assert refused(file) == "MD005: `a/b.json` cannot be read: it is no regular file"
    file.unlink()
    file.symlink_to("/dev/zero")
    assert refused(file) == "MD005: `a/b.json` cannot be read: it is no regular file"
    file.unlink()
    file.mkdir()
    assert refused(file) == "MD005: `a/b.json` cannot be read: Is a directory"


def test_the_usual_limit_is_four_mebibytes(tmp_path: Path) -> None:
    """Published configurations have some ten thousand bytes."""
    file = tmp_path / "b.json"
    file.write_bytes(b"{}" + b" " * (4 * 2**20 - 2))
    assert read_json_file(file, "b.json") is not None
    file.write_bytes(b"{}" + b" " * (4 * 2**20 - 1))
    with pytest.raises(DiagnosticError, match="larger than `4` MiB"):
        read_json_file(file, "b.json")


def test_a_mistake_of_form_has_its_line(tmp_path: Path) -> None:
    """No document holds the lines of a file of a checkpoint."""
    file = tmp_path / "b.json"
    file.write_text('{"a": 1,\n"b": }', encoding="utf-8")
    with pytest.raises(DiagnosticError) as told:
        read_json_file(file, "b.json")
    assert [each.excerpt for each in told.value.diagnostics] == ['"b": }']
