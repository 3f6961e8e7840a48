"""Environment variables: few, checked, and unknown ones are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.config.environment import (
    PREFIX,
    VARIABLES,
    cache_folder,
    check_environment,
)
from stagemesh.errors import DiagnosticError


def test_the_cache_is_below_the_home_folder_unless_told_otherwise() -> None:
    """An absolute path, or one that starts at the home folder."""
    assert cache_folder({}) == Path.home() / ".cache" / "stagemesh"
    assert cache_folder({"STAGEMESH_CACHE": "/x/y"}) == Path("/x/y")
    assert cache_folder({"STAGEMESH_CACHE": "~/z"}) == Path.home() / "z"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_a_malformed_variable_is_an_error(value: str) -> None:
    """It is never quietly ignored."""
    with pytest.raises(DiagnosticError, match="CF050") as caught:
        cache_folder({"STAGEMESH_CACHE": value})
    (found,) = caught.value.diagnostics
    assert found.message == f"environment variable `STAGEMESH_CACHE` is malformed: `{value}`"
    assert check_environment({"STAGEMESH_CACHE": value}) == (found,)


def test_a_misspelt_variable_is_found() -> None:
    """Those of others are none of our business."""
    (found,) = check_environment({"STAGEMESH_CASHE": "/x", "PATH": "/bin"})
    assert found.code == "CF051"
    assert str(found.help).startswith("did you mean `STAGEMESH_CACHE`?")
    assert check_environment({"STAGEMESH_CACHE": "/x"}) == ()


def test_there_are_at_most_ten_and_all_have_the_prefix() -> None:
    """So that `doctor` can show them all."""
    assert len(VARIABLES) <= 10
    assert all(name.startswith(PREFIX) and text for name, text in VARIABLES.items())
